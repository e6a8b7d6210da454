"""`Ticket` for adapters: subsets of the fleet, alternatives, and copies."""

import copy
import pickle
from typing import Any

import pytest

from vllm_router import NoWorkersError, Router

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
    """mending row 52: a ticket keeps no prompt, so it cannot rank workers afterwards."""
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
