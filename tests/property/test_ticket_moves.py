"""`Ticket.moved()` against its slow twin: end as not sent, and select again among the other worker alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import Router, Ticket

URLS = [f"name://{i}" for i in range(4)]
# Without auto, whose costs depend on the times of the requests.
POLICIES = [
    "cache_aware",
    "vllm_cache_aware",
    "kv_logit",
    "consistent_hash",
    "least_load",
    "prefix_aware",
    "round_robin",
    "sticky_least_loaded",
]
TEXTS = st.lists(st.sampled_from(["Hello ", "Bye ", "Why? "]), min_size=1, max_size=6).map(
    lambda words: "".join(word * 20 for word in words)
)
REQUESTS = st.fixed_dictionaries({"prompt": TEXTS, "headers": st.sampled_from([{}, {"X-Session-ID": "a"}])})
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("select"), REQUESTS),
        st.tuples(st.just("move"), st.integers(0, 9), st.sampled_from(URLS)),
        st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(["finished", "worker_failed"])),
        st.tuples(st.just("first_token"), st.integers(0, 9)),
    ),
    max_size=25,
)


class SlowTicket:
    """Moves by ending and selecting again."""

    def __init__(self, router: Router, request: dict[str, Any]) -> None:
        self.router, self.request, self.ticket = router, request, router.select(**request)

    def moved(self, url: str) -> None:
        if url == self.ticket.worker_url:
            return
        second = self.router.select(**self.request, among=[url])  # first, so that a shared text stays
        self.ticket.finish(end="not_sent")
        self.ticket = second


def shown(router: Router, request: dict[str, Any]) -> Any:
    explained = router.explain(**request)
    rows = sorted((row.url, row.rank, row.matched, row.cost) for row in explained.workers)
    return rows, [worker._replace(selections=0) for worker in router.workers]


@pytest.mark.parametrize("policy", POLICIES)
@given(steps=STEPS, asked=st.lists(REQUESTS, min_size=1, max_size=3))
def test_a_move_is_a_request_that_was_never_sent_and_one_that_was(
    policy: str, steps: list[Any], asked: list[dict[str, Any]]
) -> None:
    fast, slow = (Router(policy, URLS, seed=7) for _ in range(2))
    open_: list[tuple[Ticket, SlowTicket]] = []
    for what, *rest in steps:
        if what == "select":
            open_.append((fast.select(**rest[0]), SlowTicket(slow, rest[0])))
            continue
        if not open_:
            continue
        ticket, twin = open_[rest[0] % len(open_)]
        if what == "move":
            ticket.moved(rest[1])
            twin.moved(rest[1])
        elif what == "first_token":
            ticket.first_token()
            twin.ticket.first_token()
        else:
            assert ticket.finish(end=rest[1])
            assert twin.ticket.finish(end=rest[1])
            open_.remove((ticket, twin))
        for request in asked:
            assert shown(fast, request) == shown(slow, request)
        for ticket, twin in open_:
            assert (ticket.worker_url, ticket.matched) == (twin.ticket.worker_url, twin.ticket.matched)
