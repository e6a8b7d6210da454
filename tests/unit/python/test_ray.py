"""vllm_router.ray: ranks, tickets and replicas, on a fake of Ray Serve. tests/hosts has the real one."""

import asyncio
import gc
import importlib
import itertools
import json
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.ray_host import Future, Metadata, PendingRequest, RunningReplica, load

CHAT = {"messages": [{"role": "user", "content": "How long is the coast? " * 40}], "model": "m"}
numbers = itertools.count()


@pytest.fixture
def adapter() -> Iterator[Any]:
    with load() as module:
        yield module


def made(adapter: Any, *replicas: RunningReplica, **options: Any) -> Any:
    router = adapter.VllmRequestRouter()
    router.initialize_state(**options)
    router.update_replicas(list(replicas))
    return router


@pytest.fixture
def fleet() -> list[RunningReplica]:
    return [RunningReplica(f"replica{n}") for n in range(5)]


def pending(*args: Any, session: str = "", model: str = "", **kwargs: Any) -> PendingRequest:
    return PendingRequest(list(args), kwargs, Metadata(f"request {next(numbers)}", session, model))


def choose(router: Any, fleet: list[RunningReplica], request: PendingRequest | None) -> Any:
    return asyncio.run(router.choose_replicas(fleet, request))


def loads(router: Any) -> list[int]:
    return [worker.load for worker in router.core.workers]


def send(request: PendingRequest, replica: RunningReplica) -> None:
    """Ray has found a replica that takes it, as far as it knows."""
    request.future = Future() if request.future.done() else request.future
    request.future.set_result(replica)


def route(router: Any, request: PendingRequest, replica: RunningReplica) -> None:
    if not request.future.done():
        request.future.set_result(replica)
    router.on_request_routed(request, replica.replica_id, None)


def complete(router: Any, request: PendingRequest, replica: RunningReplica) -> None:
    router.on_request_completed(replica.replica_id, request.metadata.internal_request_id)


def test_without_ray_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "vllm_router.ray", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'ray\[serve\]'"):
        importlib.import_module("vllm_router.ray")


def test_a_ray_that_loses_requests_is_rejected() -> None:
    with pytest.raises(ImportError, match=r"ray is 2\.59\.0, .* needs Ray 2\.60 or later"), load("2.59.0"):
        pass
    for version in ("2.60.0", "2.100.1", "3.0.0.dev0"):
        with load(version):
            pass


def test_ranks_have_every_candidate_once_and_the_chosen_one_alone(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet)
    request = pending(CHAT)
    first, then, rest = choose(router, fleet, request)
    assert (len(first), len(then), len(rest)) == (1, 2, 2)
    assert {id(replica) for replica in first + then + rest} == {id(replica) for replica in fleet}
    assert request.routing_context.should_backoff
    assert sum(loads(router)) == 1


def test_a_chat_stays_and_its_load_returns(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet, policy="cache_aware")
    chosen = set()
    for _turn in range(4):
        request = pending(CHAT)
        ((replica,), _, _) = choose(router, fleet, request)
        route(router, request, replica)
        assert sum(loads(router)) == 1
        complete(router, request, replica)
        assert sum(loads(router)) == 0
        chosen.add(replica)
    assert len(chosen) == 1
    assert router.reached.count("on_request_routed") == router.reached.count("on_request_completed") == 4


def test_without_a_request_or_candidates_there_is_one_rank(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet)
    assert choose(router, fleet, None) == [fleet]
    assert choose(router, [], pending(CHAT)) == [[]]
    assert sum(loads(router)) == 0


def test_only_candidates_are_chosen(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet)
    for _ in range(5):
        first, then, rest = choose(router, fleet[3:], pending(CHAT))
        assert set(first + then + rest) == set(fleet[3:])


def test_where_none_can_be_chosen_ray_decides(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet, max_worker_requests=1)
    kept = [pending(CHAT) for _ in fleet]
    for request in kept:
        choose(router, fleet, request)
    assert choose(router, fleet, pending(CHAT)) == [fleet]


def test_a_request_that_is_chosen_for_again_has_one_ticket(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet)
    request = pending(CHAT)
    for _ in range(3):
        choose(router, fleet, request)
        assert sum(loads(router)) == 1


def test_a_request_that_ray_drops_returns_its_load(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet)
    request = pending(CHAT)
    choose(router, fleet, request)
    del request
    gc.collect()
    assert sum(loads(router)) == 0


def test_a_full_replica_hands_the_request_on(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet)
    request = pending(CHAT)
    ((first,), (second, _), _) = choose(router, fleet, request)
    route(router, request, second)
    assert [worker.url for worker in router.core.workers if worker.load] == [
        f"ray://{second.replica_id.unique_id}"
    ]
    complete(router, request, first)  # its rejection, which is told late
    assert sum(loads(router)) == 1
    complete(router, request, second)
    assert sum(loads(router)) == 0


def test_a_response_may_end_before_its_routing_is_told(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet)
    request = pending(CHAT)
    _, (second, _), _ = choose(router, fleet, request)
    send(request, second)
    complete(router, request, second)
    assert sum(loads(router)) == 0
    route(router, request, second)
    assert sum(loads(router)) == 0
    assert not router._open


def test_a_request_that_is_cancelled_returns_its_load_though_it_is_kept(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet)
    kept = [pending(CHAT), pending(CHAT)]
    ((first,), _, _) = [choose(router, fleet, request) for request in kept][1]
    kept[0].future.cancel()  # before there was a replica
    assert sum(loads(router)) == 1
    send(kept[1], first)
    kept[1].future.cancel()
    assert sum(loads(router)) == 1
    complete(router, kept[1], first)  # after it was sent
    assert sum(loads(router)) == 0


def test_a_rejection_that_is_told_late_ends_nothing(adapter: Any, fleet: Any) -> None:
    router = made(adapter, fleet[0])
    request = pending(CHAT)
    choose(router, fleet[:1], request)
    send(request, fleet[0])
    request.future = Future()  # rejected: Ray looks again
    choose(router, fleet[:1], request)
    complete(router, request, fleet[0])
    assert loads(router) == [1]
    route(router, request, fleet[0])
    complete(router, request, fleet[0])
    assert loads(router) == [0]


def test_events_of_unknown_requests_are_ignored(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet)
    for _ in range(3):
        complete(router, pending(CHAT), fleet[0])
    route(router, pending(CHAT), fleet[0])  # without a ticket
    assert loads(router) == [0] * 5
    assert not router._open
    assert not router._pending


def test_replicas_come_and_go(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet[:2])
    request = pending(CHAT)
    ((replica,), _, _) = choose(router, fleet[:2], request)
    route(router, request, replica)
    router.update_replicas(fleet[2:])
    assert router.core.worker_urls == [f"ray://replica{n}" for n in (2, 3, 4)]
    complete(router, request, replica)
    assert loads(router) == [0, 0, 0]
    assert router.reached.count("update_replicas") == 2


def test_a_dead_replica_is_not_chosen_until_it_is_listed_again(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet[:2])
    requests = [pending(CHAT) for _ in range(4)]
    for request in requests:
        ((replica,), _, _) = choose(router, fleet[:2], request)
        route(router, request, replica)
    router.on_replica_actor_died(fleet[0].replica_id)
    assert loads(router)[0] == 0
    others = [pending(CHAT) for _ in range(3)]
    assert all(choose(router, fleet[:2], request)[0] == [fleet[1]] for request in others)
    router.on_replica_actor_died(fleet[0].replica_id)  # again
    assert not router.core.workers[0].healthy
    router.update_replicas(fleet[:2])
    assert router.core.workers[0].healthy
    assert choose(router, fleet[:1], pending(CHAT)) == [[fleet[0]], [], []]


def test_loads_are_exact_whatever_the_order_of_hooks(adapter: Any, fleet: Any, rng: random.Random) -> None:
    """2,000 requests, of which every tenth is cancelled before it is sent, and a replica that dies."""
    router = made(adapter, *fleet)
    sent: list[tuple[PendingRequest, RunningReplica]] = []
    alive = list(fleet)
    for n in range(2000):
        request = pending(f"{n % 40} " * 50)
        ranks = choose(router, alive, request)
        if n == 1000:
            dead = alive.pop()
            router.on_replica_actor_died(dead.replica_id)
            router.update_replicas(alive)
            sent = [pair for pair in sent if pair[1] is not dead]
            ranks = choose(router, alive, request)
        if n % 10:
            replica = rng.choice([*ranks[0], *ranks[0], *ranks[1]])
            if rng.random() < 0.05:
                send(request, replica)
                complete(router, request, replica)
                route(router, request, replica)
            else:
                route(router, request, replica)
                sent.append((request, replica))
        if len(sent) > 30:
            complete(router, *sent.pop(rng.randrange(len(sent))))
        del request
    assert sum(loads(router)) == len(sent)
    for pair in sent:
        complete(router, *pair)
    assert loads(router) == [0] * 4
    assert not router._open


def test_sessions_and_adapters_are_told(adapter: Any, fleet: Any) -> None:
    router = made(adapter, *fleet, policy="consistent_hash")
    assert len({choose(router, fleet, pending(f"{n}", session="s"))[0][0] for n in range(20)}) == 1
    assert len({choose(router, fleet, pending("x", session=f"{n}"))[0][0] for n in range(40)}) > 1
    router = made(adapter, *fleet, policy="cache_aware")
    text = "How long is the coast? " * 40
    kept = [pending(text, model="a"), pending(text, model="b"), pending(text, model="a")]
    first, other, again = (choose(router, fleet, request)[0] for request in kept)
    assert first == again != other


class Message:
    def model_dump(self, **_: Any) -> Any:
        return CHAT["messages"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ([CHAT], {}),
        ([], {"request": CHAT}),
        ([types.SimpleNamespace(messages=[Message()], model="m", tools=None)], {}),
        ([None, types.SimpleNamespace(messages=CHAT["messages"], model="m")], {}),
        ([json.dumps(CHAT, separators=(",", ":"))], {}),
        ([json.dumps(CHAT, separators=(",", ":")).encode()], {}),
    ],
    ids=["dict", "keyword", "pydantic", "object", "str", "bytes"],
)
def test_a_chat_is_read_in_each_of_its_forms(adapter: Any, fleet: Any, args: Any, kwargs: Any) -> None:
    router = made(adapter, *fleet, policy="cache_aware")
    first = pending(CHAT)
    second = pending(*args, **kwargs)
    assert choose(router, fleet, first)[0] == choose(router, fleet, second)[0]
    assert second.vllm_router_ticket.matched > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (["How long is the coast? " * 40], {}),
        ([{"prompt": "How long is the coast? " * 40}], {}),
        ([{**CHAT, "tools": [types.SimpleNamespace(model_dump=lambda **_: {"name": "f"})]}], {}),
        ([], {"request_token_ids": list(range(500))}),
    ],
    ids=["text", "prompt", "tools", "token_ids"],
)
def test_what_is_no_chat_is_read_as_well(adapter: Any, fleet: Any, args: Any, kwargs: Any) -> None:
    router = made(adapter, *fleet, policy="cache_aware")
    requests = [pending(*args, **kwargs) for _ in range(2)]
    for request in requests:
        choose(router, fleet, request)
    assert requests[1].vllm_router_ticket.matched > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "args",
    [[], [7], [{"messages": [object()]}], [{"messages": [{"a": float("nan")}]}]],
    ids=["nothing", "number", "object", "nan"],
)
def test_what_cannot_be_read_is_decided_by_load(adapter: Any, fleet: Any, args: Any) -> None:
    router = made(adapter, *fleet)
    kept = [pending(*args) for _ in fleet]
    for request in kept:
        choose(router, fleet, request)
    assert loads(router) == [1] * 5


def test_an_iterator_is_left_to_the_replica(adapter: Any, fleet: Any) -> None:
    messages = iter(CHAT["messages"])
    choose(made(adapter, *fleet), fleet, pending(types.SimpleNamespace(messages=messages)))
    assert list(messages) == CHAT["messages"]


def test_a_wrong_option_is_refused_at_deployment(adapter: Any) -> None:
    with pytest.raises(TypeError, match="cache_threshold"):
        adapter.VllmRequestRouter().initialize_state(policy="cache_aware", cache_treshold=0.3)
