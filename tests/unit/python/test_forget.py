"""Router.forget(): caches are empty, loads stay."""

import pytest

from vllm_router import Router, WorkerNotFoundError

URLS = ["http://a:1", "http://b:1@0", "http://b:1@1"]


@pytest.mark.parametrize("policy", ["cache_aware", "auto", "vllm_cache_aware", "prefix_aware", "least_load"])
def test_nothing_matches_any_more_and_loads_stay(policy: str) -> None:
    router = Router(policy, URLS)
    tickets = [router.select(token_ids=[n] * 512, among=[url]) for n, url in enumerate(URLS)]

    def matches() -> list[bool]:
        shown = [router.explain(token_ids=[n] * 512).workers for n in range(len(URLS))]
        return [
            any(worker.matched for worker in workers if worker.url == url)
            for url, workers in zip(URLS, shown, strict=True)
        ]

    remembers = policy not in ("prefix_aware", "least_load")
    assert matches() == [remembers] * 3
    router.forget("http://b:1")  # both ranks
    assert matches() == [remembers, False, False]
    router.forget()
    assert matches() == [False] * 3
    assert [worker.load for worker in router.workers] == [1, 1, 1]
    for ticket in tickets:
        ticket.finish()
    assert [worker.load for worker in router.workers] == [0, 0, 0]
    assert matches() == [False] * 3  # what was open then is not learnt when it ends


def test_what_is_sent_afterwards_is_learnt() -> None:
    router = Router("cache_aware", URLS[:1])
    router.forget()
    router.select(token_ids=[1] * 512).finish()
    assert router.explain(token_ids=[1] * 512).matched > 0


def test_a_worker_that_is_not_in_the_fleet_is_named() -> None:
    router = Router("auto", URLS)
    with pytest.raises(WorkerNotFoundError, match="http://c:1"):
        router.forget("http://c:1")
