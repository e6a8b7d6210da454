"""`Ticket` for adapters: subsets of the fleet, alternatives, and copies."""

import copy
import pickle
import sys
from typing import Any

import numpy as np
import pytest

from tests.rows import for_each_row
from vllm_router import NoWorkersError, Router, RouterError, TicketFinishedError, WorkerNotFoundError

URLS = ["http://a:8000", "http://b:8000", "http://c:8000", "http://d:8000@0", "http://d:8000@1"]
POLICIES = ["auto", "cache_aware", "consistent_hash", "least_load", "prefix_aware", "random", "round_robin"]


def open_requests(router: Router) -> int:
    return sum(worker.load for worker in router.workers)


def counts(router: Router) -> dict[str, Any]:
    """All counts but those of time."""
    stats = router.stats()
    for timed in ("match_times", "match_seconds"):
        stats.get("block_index", {}).pop(timed, None)
    return stats


@pytest.mark.parametrize("policy", POLICIES)
def test_only_workers_among_those_named_are_chosen(policy: str) -> None:
    """mending row 52: among= is the dual of exclude=."""
    router = Router(policy, URLS, seed=1)
    request: dict[str, Any] = {"prompt": "Hello", "headers": {"X-Session-ID": "ada"}}
    for among in ([URLS[1]], URLS[1:3], (url for url in URLS[:2]), {URLS[0]: 1}, [URLS[2], "http://gone:1"]):
        names = set(among) if not hasattr(among, "send") else set(URLS[:2])
        chosen = router.select(**request, among=names if hasattr(among, "send") else among).worker_url
        assert chosen in names
        excluded = [url for url in URLS if url not in names]
        others = Router(policy, URLS, seed=1)
        assert router.explain(**request, among=names).worker_url in names
        assert others.select(**request, exclude=excluded).worker_url in names


def test_a_url_without_rank_means_all_its_ranks() -> None:
    """mending row 52: as in exclude=, which counts besides."""
    router = Router("round_robin", URLS)
    assert {router.select(among=["http://d:8000"]).rank for _ in range(4)} == {0, 1}
    assert router.select(among=["http://d:8000"], exclude=["http://d:8000@0"]).rank == 1


def test_nobody_named_is_nobody() -> None:
    """mending row 52: an empty list is not the absence of one."""
    router = Router("cache_aware", URLS)
    with pytest.raises(NoWorkersError, match="5 excluded"):
        router.select(prompt="x", among=[])
    with pytest.raises(TypeError, match=r"among is 'http://a:8000'; .* pass \['http://a:8000'\]"):
        router.select(prompt="x", among=URLS[0])
    assert router.select(prompt="x", among=None).worker_url in URLS


@pytest.mark.parametrize("policy", POLICIES)
def test_alternatives_are_the_policys_next_choices(policy: str) -> None:
    """mending row 52: the order of the same policy with the first ones excluded; nothing is reserved."""
    router = Router(policy, URLS, seed=1)
    request: dict[str, Any] = {"prompt": "Hello " * 50, "headers": {"X-Session-ID": "ada"}}
    ticket = router.select(**request, alternatives=3)
    assert open_requests(router) == 1
    once = Router(policy, URLS, seed=1)
    kept = once.select(**request)  # a ticket that is dropped takes its prompt back
    assert counts(router) == counts(once)
    assert not kept.finished
    alternatives = ticket.alternatives(3)
    assert len(set(alternatives)) == 3
    assert ticket.worker_url not in alternatives
    assert ticket.alternatives() == alternatives[:2]
    assert ticket.alternatives(0) == []
    assert ticket.alternatives(99) == alternatives
    excluded = [ticket.worker_url]
    for url in alternatives:
        assert router.explain(**request, exclude=excluded).worker_url == url
        excluded.append(url)
    assert ticket.finish()


def test_alternatives_have_to_be_asked_for() -> None:
    """mending row 52: ranking costs as much as a decision, so it is done when it is wanted."""
    router = Router("cache_aware", URLS[:2])
    with pytest.raises(ValueError, match=r"select\(\.\.\., alternatives=2\)"):
        router.select(prompt="x").alternatives()
    with pytest.raises(ValueError, match="alternatives is -1"):
        router.select(prompt="x", alternatives=-1)
    assert len(router.select(prompt="x", alternatives=5).alternatives(5)) == 1
    assert open_requests(router) == 0


def test_a_copied_ticket_is_the_same_ticket() -> None:
    """mending row 52: hosts copy the metadata of their requests, and the load returns once."""
    router = Router("cache_aware", URLS)
    batch = router.select_batch(["x", "y"])
    for ticket in (router.select(prompt="x"), router.select(prompt="x", alternatives=1), batch[0], batch):
        metadata = {"deep": [{"ticket": ticket}]}
        copied = copy.deepcopy(metadata)
        assert copied["deep"] is not metadata["deep"]
        assert copied["deep"][0]["ticket"] is ticket
        assert copy.copy(ticket) is ticket
    del metadata, copied
    assert open_requests(router) == 2  # the batch alone is left
    assert ticket.finish() == 2
    del ticket
    assert open_requests(router) == 0


def test_a_ticket_belongs_to_one_process() -> None:
    """mending row 52: pickled, it would return its load nowhere."""
    router = Router("cache_aware", URLS)
    for ticket in (router.select(prompt="x"), router.select(prompt="x", alternatives=1)):
        with pytest.raises(TypeError, match="a ticket belongs to one process"):
            pickle.dumps(ticket)
    with pytest.raises(TypeError, match="a batch belongs to one process"):
        pickle.dumps(router.select_batch(["x"]))


def loads(router: Router) -> dict[str, int]:
    return {worker.url: worker.load for worker in router.workers if worker.load}


REQUESTS: list[dict[str, Any]] = [
    {"prompt": "Hello " * 100},
    {"prompt": bytearray(b"Hello " * 100)},
    {"prompt": "Hello " * 100, "model": "llama"},
    {"token_ids": list(range(100))},
    {"token_ids": np.arange(100, dtype=np.uint32)},
    {"body": b'{"prompt": "%s"}' % (b"Hello " * 100)},
    {"messages": [{"role": "user", "content": "Hello " * 100}], "model": "llama"},
]


@for_each_row("policy", sorted({*POLICIES, "vllm_cache_aware", "prefix_hash", "sticky_least_loaded"}))
@for_each_row("request_", REQUESTS, ids=lambda request: "-".join(request))
def test_a_moved_ticket_is_one_for_the_other_worker(policy: str, request_: dict[str, Any]) -> None:
    """mending row 52: load and prompt move; the first worker knows nothing of the prompt."""
    request = {**request_, "headers": {"X-Session-ID": "ada"}}
    router = Router(policy, URLS, seed=1)
    ticket = router.select(**request, alternatives=4)
    first = ticket.worker_url
    for other in [url for url in URLS if url != first][:2]:
        ticket.moved(other)
        assert (ticket.worker_url, ticket.reason) == (other, "pinned")
        assert ticket.worker_url == ticket.base_url + ("" if ticket.rank is None else f"@{ticket.rank}")
        assert ticket.matched == 0
        assert other not in ticket.alternatives(9)
        assert loads(router) == {other: 1}
        assert repr(ticket).startswith(f"<Ticket {other} pinned")
        assert "Hello" not in repr(ticket) + ticket.explain()
    ticket.moved(other)
    assert loads(router) == {other: 1}
    assert ticket.finish()
    assert loads(router) == {}
    again = {row.url: row.matched for row in router.explain(**request).workers if row.matched is not None}
    if again:
        assert again[other] > 0
        assert {url for url, matched in again.items() if matched} == {other}


def test_a_move_takes_the_prompt_back_unless_it_was_there_before() -> None:
    """mending row 52: as finish(end="not_sent") does."""
    router = Router("cache_aware", URLS[:2], seed=1)
    with router.select(prompt="Hello " * 100) as ticket:
        first = ticket.worker_url
    second = next(url for url in URLS[:2] if url != first)
    ticket = router.select(prompt="Hello " * 100 + "Bye " * 100)
    assert ticket.worker_url == first
    ticket.moved(second)
    ticket.finish()
    held = {row.url: row.matched for row in router.explain(prompt="Hello " * 100 + "Bye " * 100).workers}
    assert held == {first: 600, second: 1000}


def test_a_session_follows_a_moved_ticket() -> None:
    """mending row 52: the policy learns where the request went."""
    router = Router("sticky_least_loaded", URLS[:3])
    ticket = router.select(headers={"X-Session-ID": "ada"})
    other = next(url for url in URLS[:3] if url != ticket.worker_url)
    ticket.moved(other)
    assert router.select(headers={"X-Session-ID": "ada"}).worker_url == other


def test_a_move_has_no_limit_and_needs_no_health() -> None:
    """mending row 52: the request is there already, so the router has no say."""
    router = Router("least_load", URLS[:2], max_worker_requests=1)
    first, second = router.select(), router.select()
    router.drain_worker(second.worker_url)
    router.set_healthy(second.worker_url, False)
    first.moved(second.worker_url)
    assert loads(router) == {second.worker_url: 2}


def test_what_cannot_move_says_why() -> None:
    router = Router("auto", URLS)
    ticket = router.select(prompt="secret", exclude=URLS[1:])
    with pytest.raises(WorkerNotFoundError, match=r'went to "http://z:8000", and the fleet of 5 has no such'):
        ticket.moved("http://z:8000")
    with pytest.raises(ValueError, match=r'"http://d:8000", which is 2 workers of the fleet; name the rank'):
        ticket.moved("http://d:8000")
    with pytest.raises(TypeError):
        ticket.moved(None)  # type: ignore[arg-type]
    assert loads(router) == {URLS[0]: 1}
    ticket.finish()
    with pytest.raises(TicketFinishedError, match="http://a:8000 is finished") as refused:
        ticket.moved(URLS[1])
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, RouterError)
    batch = router.select_batch(["secret"])
    with pytest.raises(ValueError, match=r"a row of a batch, which keeps no prompts"):
        batch[0].moved(URLS[1])
    assert sum(loads(router).values()) == 1


def test_an_explained_ticket_explains_its_move() -> None:
    """mending row 52: the words are those of the new worker."""
    router = Router("least_load", URLS[:2])
    ticket = router.select(explain=True)
    other = next(url for url in URLS[:2] if url != ticket.worker_url)
    ticket.moved(other)
    assert other in ticket.explain().splitlines()[0]


def test_a_ticket_lets_go_of_its_prompt_when_it_ends() -> None:
    """mending row 52: what is kept for moved() goes with the load."""
    prompt = "".join(["Hello "] * 100)
    before = sys.getrefcount(prompt)
    router = Router("cache_aware", URLS)
    ticket = router.select(prompt=prompt)
    ticket.finish()
    assert sys.getrefcount(prompt) == before
    with router.select(prompt=prompt):
        pass
    assert sys.getrefcount(prompt) == before


def test_a_router_may_know_its_workers_by_name() -> None:
    """mending row 52: ray:// and name:// for hosts that connect themselves; served, they are refused."""
    names = ["ray://app#llm#1f9k", "name://Node-3", "name://a@b"]
    router = Router("cache_aware", names[:2])
    router.add_worker(names[2])
    assert router.worker_urls == names
    assert {router.select(prompt="x", among=[name]).worker_url for name in names} == set(names)
    assert router.select(among=[names[0]]).base_url == names[0]
    router.set_healthy(names[0], False)
    router.remove_worker(names[0])
    with pytest.raises(ValueError, match=r'"name://Node-3" is a name, and a router that serves connects'):
        router.serve()
    ranks = Router(worker_urls=["ray://a"], intra_node_data_parallel_size=2)
    assert ranks.worker_urls == ["ray://a@0", "ray://a@1"]
    with Router(worker_urls=["http://127.0.0.1:9"]).serve() as server:
        del server
    served = Router(worker_urls=["http://127.0.0.1:9"])
    with served.serve(), pytest.raises(ValueError, match=r"embed the router and connect to them yourself"):
        served.add_worker("ray://a")


class Message:
    def __init__(self, role: str, content: Any) -> None:
        self.role, self.content, self.name = role, content, None


def test_messages_may_be_objects() -> None:
    """mending row 52: pydantic models and others, as hosts have them."""
    text = "Hello " * 100
    router = Router("cache_aware", URLS)
    with router.select(messages=[{"role": "user", "content": text}]):
        pass
    of_dicts = router.explain(messages=[{"role": "user", "content": text}])
    of_objects = router.explain(messages=[Message("user", text)])
    assert of_objects == of_dicts
    assert of_objects.matched == of_objects.text_bytes > len(text)
    with pytest.raises(TypeError, match="which JSON does not have"):
        router.select(messages=[object()])
