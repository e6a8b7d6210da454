"""vllm_router.verl: the protocol of verl's rollout routers, without verl. tests/hosts has the real one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router.verl import VllmRouter

SERVERS = {"10.0.0.1:8000": "handle 1", "[::1]:8000": "handle 2", "rollout/3": "handle 3"}
PROMPT = list(range(1000, 1512))


def loads(router: VllmRouter) -> list[int]:
    return list(router.get_status()["servers"].values())


def test_a_turn_is_counted_until_it_is_released() -> None:
    router = VllmRouter(SERVERS, {"router_class": "vllm_router.verl.VllmRouter", "policy": "cache_aware"})
    server_id, handle = router.acquire_server("t", prompt_ids=PROMPT)
    assert SERVERS[server_id] == handle
    assert router.get_total_inflight() == 1
    assert router.get_status()["servers"][server_id] == 1
    router.release_server(server_id, request_id="t")
    router.release_server(server_id, request_id="t")  # again
    router.release_server("elsewhere", request_id="t")
    router.release_server(server_id)
    assert router.get_total_inflight() == 0


def test_the_fields_that_are_declared_are_those_that_are_read() -> None:
    router = VllmRouter(SERVERS, {})
    assert router.require_acquire_fields() == ["prompt_ids"]
    assert router.require_release_fields() == ["request_id"]
    router.acquire_server(request_id="t", prompt_ids=PROMPT, sampling_params={})
    assert sorted(router.get_all_servers()) == sorted(SERVERS)


def test_samples_of_a_prompt_and_turns_of_a_trajectory_stay_together() -> None:
    router = VllmRouter(SERVERS, {"policy": "cache_aware"})
    placed = {router.acquire_server(f"sample {n}", prompt_ids=PROMPT)[0] for n in range(8)}
    assert len(placed) == 1
    longer = PROMPT + list(range(200))
    assert {router.acquire_server("sample 0", prompt_ids=longer)[0]} == placed


@pytest.mark.parametrize("servers", [{}, {"a": 1}], ids=["at_first", "after_removal"])
def test_an_empty_pool_says_the_words_for_which_verl_waits(servers: dict[str, Any]) -> None:
    router = VllmRouter(servers, {})
    router.remove_servers(list(servers))
    with pytest.raises(RuntimeError, match=r"^No available servers in load balancer"):
        router.acquire_server("t", prompt_ids=PROMPT)
    router.add_servers({"b": 2})
    assert router.acquire_server("t", prompt_ids=PROMPT) == ("b", 2)


def test_a_server_that_is_removed_takes_its_turns_along() -> None:
    router = VllmRouter({"a": 1}, {})
    router.acquire_server("t", prompt_ids=PROMPT)
    router.add_servers({"b": 2})
    router.remove_servers(["a", "unknown"])
    assert router.get_status()["servers"] == {"b": 0}
    router.release_server("a", request_id="t")
    router.add_servers({"a": 3})
    assert router.get_status()["servers"] == {"b": 0, "a": 0}


def test_a_handle_may_be_replaced() -> None:
    router = VllmRouter({"a": 1}, {})
    router.add_servers({"a": 2})
    assert router.acquire_server("t") == ("a", 2)


def test_a_new_epoch_forgets_caches_and_sessions_and_no_load() -> None:
    router = VllmRouter(SERVERS, {"policy": "cache_aware"})
    server_id, _ = router.acquire_server("t", prompt_ids=PROMPT)
    assert router.core.explain(token_ids=PROMPT).matched > 0
    told = router.clear_sticky_cache()
    assert told["cleared_entries"] == 1
    assert told["server_loads"][server_id] == 1
    assert router.core.explain(token_ids=PROMPT).matched == 0
    assert router.get_total_inflight() == 1
    router.release_server(server_id, request_id="t")
    assert router.get_total_inflight() == 0
    assert router.core.explain(token_ids=PROMPT).matched == 0


def test_a_session_of_a_former_epoch_is_not_found() -> None:
    router = VllmRouter({"a": 1, "b": 2}, {"policy": "sticky_least_loaded"})
    first = router.acquire_server("t", prompt_ids=PROMPT)[0]
    assert router.acquire_server("t", prompt_ids=PROMPT)[0] == first
    router.clear_sticky_cache()
    assert router.acquire_server("t", prompt_ids=PROMPT)[0] != first


def test_caches_that_survive_stay_known() -> None:
    router = VllmRouter(SERVERS, {"policy": "cache_aware", "caches_survive_clear": True})
    router.acquire_server("t", prompt_ids=PROMPT)
    router.clear_sticky_cache()
    assert router.core.explain(token_ids=PROMPT).matched > 0


def test_a_dead_client_holds_the_barrier_no_longer_than_its_lease() -> None:
    router = VllmRouter(SERVERS, {"ticket_lease_secs": 0.001})
    router.acquire_server("t", prompt_ids=PROMPT)
    while router.get_total_inflight():
        pass  # the test's own timeout ends this
    assert router.core.stats()["tickets_expired"] == 1


def test_wrong_options_are_refused() -> None:
    with pytest.raises(TypeError, match="cache_threshold"):
        VllmRouter(SERVERS, {"policy": "cache_aware", "cache_treshold": 1})
    with pytest.raises(TypeError, match="caches_survive_clear is of type str"):
        VllmRouter(SERVERS, {"caches_survive_clear": "no"})


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), st.integers(0, 5), st.integers(1, 6)),
        st.tuples(st.just("release"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("add"), st.integers(0, 2), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("policy", ["cache_aware", "auto", "vllm_cache_aware"])
@given(operations=OPERATIONS)
def test_no_cache_of_an_epoch_is_expected_in_another(policy: str, operations: Any) -> None:
    """What a server is expected to hold of a prompt was sent there in this epoch; loads are exact."""
    names = list(SERVERS)
    router = VllmRouter(SERVERS, {"policy": policy})
    sent: dict[str, list[list[int]]] = {name: [] for name in names}
    open_turns: list[tuple[str, str]] = []
    for step, (what, one, other) in enumerate(operations):
        if what == "acquire":
            prompt = [one] * 64 + list(range(64 * (other - 1)))
            shown = router.core.explain(token_ids=prompt)
            for worker in shown.workers:
                server_id = router._ids[worker.url]
                held = max((common(prompt, before) for before in sent[server_id]), default=0)
                assert worker.matched <= held * (4 if shown.unit == "bytes" else 1)
            if not router.get_all_servers():
                continue
            server_id, _ = router.acquire_server(f"t{step % 7}", prompt_ids=prompt)
            sent[server_id].append(prompt)
            open_turns.append((server_id, f"t{step % 7}"))
        elif what == "release" and open_turns:
            server_id, request_id = open_turns.pop(one % len(open_turns))
            router.release_server(server_id, request_id=request_id)
        elif what == "clear":
            router.clear_sticky_cache()
            sent = {name: [] for name in names}
        elif what == "remove":
            router.remove_servers([names[one]])
            sent[names[one]] = []
            open_turns = [turn for turn in open_turns if turn[0] != names[one]]
        elif what == "add":
            router.add_servers({names[one]: step})
        counted = {name: sum(turn[0] == name for turn in open_turns) for name in router.get_all_servers()}
        assert router.get_status()["servers"] == counted
        assert router.get_total_inflight() == len(open_turns)


def common(one: list[int], other: list[int]) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
