"""`Router.explain()` is a dry run: it says what the next `select()` does, and leaves no trace of itself.

Two routers with one seed live through the same story; one of them is asked to explain in between.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import NoWorkersError, Router

POLICIES: dict[str, dict[str, Any]] = {
    "random": {},
    "round_robin": {},
    "least_load": {},
    "power_of_two": {},
    "consistent_hash": {"hash_load_factor": 1.25},
    "rendezvous_hash": {},
    "sticky_least_loaded": {"session_ttl_secs": 3600},
    "cache_aware": {"cache_threshold": 0.2},
    "vllm_cache_aware": {"block_size": 2, "cache_threshold": 0.1},
    "prefix_aware": {"max_prefix_length": 8},
    "prefix_hash": {"prefix_token_count": 2},
    "auto": {"block_size": 2},
}
URLS = [f"http://w{i}:8000" for i in range(5)]

PROMPTS = st.lists(st.sampled_from("ab"), max_size=40).map("".join)
SESSIONS = st.one_of(st.none(), st.sampled_from(["ada", "ben", "cyd"]))


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    session = draw(SESSIONS)
    request: dict[str, Any] = {"headers": {"X-Session-ID": session}} if session else {}
    text = draw(PROMPTS)
    form = draw(st.sampled_from(["prompt", "body", "messages", "token_ids", "none"]))
    if form == "prompt":
        request["prompt"] = text
    elif form == "body":
        request["body"] = {"model": "m", "prompt": text}
    elif form == "messages":
        request["messages"] = [{"role": "system", "content": "ab" * 9}, {"role": "user", "content": text}]
    elif form == "token_ids":
        request["token_ids"] = [ord(letter) for letter in text]
    return request


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("select"), requests()),
        st.tuples(st.just("select"), requests()),
        st.tuples(st.just("finish"), st.integers(0, 9)),
        st.tuples(st.just("healthy"), st.tuples(st.sampled_from(URLS), st.booleans())),
        st.tuples(st.just("drain"), st.sampled_from(URLS[3:])),
        st.tuples(st.just("finish_session"), SESSIONS.filter(bool)),
    ),
    max_size=25,
)


def state(router: Router) -> Any:
    """All of a router that can be seen."""
    return router.workers, router.stats()


def decision(router: Router, request: dict[str, Any]) -> Any:
    """The ticket and what it says, or (None, None)."""
    try:
        ticket = router.select(**request)
    except NoWorkersError:
        return None, None
    return ticket, (ticket.worker_url, ticket.reason, ticket.unit, ticket.matched, ticket.total)


@pytest.mark.parametrize("policy", POLICIES)
@given(
    seed=st.integers(0, 2**64 - 1),
    story=STEPS,
    most=st.sampled_from([0, 2]),
    weights=st.sampled_from([(1.0,) * 5, (1.0, 2.0, 1.0, 3.0, 0.5)]),
)
def test_explaining_changes_nothing_and_says_what_select_does_next(
    policy: str, seed: int, story: list[Any], most: int, weights: tuple[float, ...]
) -> None:
    """mending row 44: explain() ranks all workers, reserves and records nothing."""
    options = {"policy": policy, "seed": seed, "max_worker_requests": most, **POLICIES[policy]}
    asked, quiet = Router(**options), Router(**options)
    for router in (asked, quiet):
        for url, weight in zip(URLS, weights, strict=True):
            router.add_worker(url, weight)
    tickets: list[Any] = []
    for what, argument in story:
        if what == "finish":
            for pair in tickets[argument : argument + 1]:
                assert len({ticket.finish() for ticket in pair}) == 1
        elif what == "healthy":
            asked.set_healthy(*argument)
            quiet.set_healthy(*argument)
        elif what == "finish_session":
            assert asked.finish_session(argument) == quiet.finish_session(argument)
        elif what == "drain":
            asked.drain_worker(argument)
            quiet.drain_worker(argument)
        else:
            before = state(asked)
            explained = asked.explain(**argument)
            assert asked.explain(**argument) == explained
            assert state(asked) == before
            ticket, said = decision(asked, argument)
            other, quietly = decision(quiet, argument)
            assert said == quietly
            if ticket is None:
                assert explained.worker_url is explained.reason is None
            else:
                assert said == (
                    explained.worker_url,
                    explained.reason,
                    explained.unit,
                    explained.matched,
                    explained.total,
                )
                tickets.append((ticket, other))


@pytest.mark.parametrize("policy", POLICIES)
@given(seed=st.integers(0, 2**64 - 1), learned=st.lists(requests(), max_size=12), request_=requests())
def test_each_rank_is_what_would_be_chosen_without_those_before_it(
    policy: str, seed: int, learned: list[dict[str, Any]], request_: dict[str, Any]
) -> None:
    """mending row 44: the ranking is the policy asked again without the first ones; it has all workers."""
    router = Router(policy, URLS, seed=seed, **POLICIES[policy])
    tickets = [router.select(**each) for each in learned]
    router.set_healthy(URLS[1], False)
    explained = router.explain(**request_)
    assert sorted(worker.url for worker in explained.workers) == URLS
    assert [worker.rank for worker in explained.workers] == [1, 2, 3, 4, None]
    assert explained.workers[4][1:4] == (URLS[1], None, "unhealthy")
    excluded: list[str] = []
    for worker in explained.workers[:4]:
        first = router.explain(**request_, exclude=excluded).workers[0]
        assert (first.url, first.reason) == (worker.url, worker.reason)
        excluded.append(worker.url)
    loads = {info.url: info for info in router.workers}
    for worker in explained.workers:
        info = loads[worker.url]
        assert (worker.load, worker.context_tokens, worker.weight) == (
            info.load,
            info.context_tokens,
            info.weight,
        )
    del tickets
