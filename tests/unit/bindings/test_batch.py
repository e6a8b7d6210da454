"""`Batch`: the rows of one `select_batch()`, finished in parts, each exactly once."""

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import Router, Ticket

URLS = ["http://a:8000", "http://b:8000", "http://c:8000"]
SIZE = 6


def open_requests(router: Router) -> int:
    return sum(worker.load for worker in router.workers)


def make(size: int = SIZE) -> tuple[Router, Any]:
    router = Router("round_robin", URLS)
    return router, router.select_batch(prompts=["x"] * size)


ROWS = st.one_of(
    st.integers(-SIZE, SIZE - 1),
    st.lists(st.integers(-SIZE, SIZE - 1), max_size=8),
    st.builds(np.array, st.lists(st.integers(0, SIZE - 1), max_size=8)),
    st.builds(range, st.integers(0, SIZE - 1), st.integers(0, SIZE)),
    st.builds(
        slice, st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9), st.sampled_from([1, 2, -1])
    ),
    st.builds(np.array, st.lists(st.booleans(), min_size=SIZE, max_size=SIZE)),
    st.none(),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("finish"), ROWS),
        st.tuples(st.just("take"), st.integers(-SIZE, SIZE - 1)),
        st.tuples(st.just("finish_ticket"), st.integers(0, 9)),
        st.tuples(st.just("drop_ticket"), st.integers(0, 9)),
        st.tuples(st.just("drop_batch"), st.none()),
    ),
    max_size=12,
)


def chosen(rows: Any) -> set[int]:
    """The rows that an argument names, by way of numpy."""
    everything = np.arange(SIZE)
    if rows is None:
        return set(everything.tolist())
    if isinstance(rows, (int, slice)):
        return set(np.atleast_1d(everything[rows]).tolist())
    mask = getattr(rows, "dtype", None) == np.bool_
    return set(everything[rows if mask else np.array(list(rows), dtype=np.int64)].tolist())


@given(STEPS)
def test_every_row_returns_its_load_exactly_once(steps: list[tuple[str, Any]]) -> None:
    """mending row 43: rows are finished in parts, in any order, twice, or by being dropped."""
    router, batch = make()
    still = set(range(SIZE))  # rows whose load is reserved
    taken: list[tuple[int, Ticket]] = []
    for what, argument in steps:
        if what == "finish" and batch is not None:
            rows = chosen(argument)
            assert batch.finish(rows=argument) == len(rows & still)
            still -= rows
        elif what == "take" and batch is not None:
            ticket = batch[argument]
            assert ticket is batch[argument]
            taken.append((argument % SIZE, ticket))
        elif what == "finish_ticket" and argument < len(taken):
            row, ticket = taken[argument]
            assert ticket.finish() == (row in still)
            still.discard(row)
        elif what == "drop_ticket" and argument < len(taken):
            row = taken.pop(argument)[0]
            if batch is None and row not in {row for row, _ in taken}:
                still.discard(row)
        elif what == "drop_batch":
            batch = None
            still &= {row for row, _ in taken}
        ticket = None
        gc.collect(0)
        assert open_requests(router) == len(still)
    del batch
    taken.clear()
    ticket = None
    assert open_requests(router) == 0


def test_a_row_is_a_ticket() -> None:
    """mending row 43: batch[i] has what a ticket of select() has."""
    router = Router("cache_aware", URLS, seed=1)
    router.select(prompt="x" * 100).finish()
    batch = router.select_batch(prompts=["x" * 100, "y" * 100])
    first = batch[0]
    assert isinstance(first, Ticket)
    assert first.worker_url == batch.worker_urls[batch.workers[0]]
    assert (first.reason, first.unit, first.matched) == ("prefix_hit", "bytes", batch.matched[0])
    assert batch.reason == ["prefix_hit", "prefix_miss"]
    assert batch.unit == ["bytes", "bytes"]
    assert [ticket.worker_url for ticket in batch] == [batch.worker_urls[i] for i in batch.workers]
    first.finish()
    assert repr(batch) == "<Batch of 2, 1 open>"
    assert batch.finish() == 1


def test_a_ticket_outlives_its_batch() -> None:
    """mending row 43: rows that are dropped return their load; one that is held keeps it."""
    router, batch = make()
    ticket = batch[2]
    del batch
    assert open_requests(router) == 1
    assert ticket.finish()
    assert open_requests(router) == 0


def test_each_row_has_its_own_outcome() -> None:
    """mending row 43: status and tokens are one for all rows, or one for each."""
    router = Router("cache_aware", URLS, seed=1)
    batch = router.select_batch(prompts=["x" * 400] * 3)
    assert batch.finish(rows=[0], status=503, end="worker_failed") == 1
    assert (
        batch.finish(rows=[1, 2], status=[200, np.int64(429)], tokens=np.array([7, 8]), cached_tokens=[64, 0])
        == 2
    )
    stats = router.stats()["cache_routing"]
    assert stats["reported_tokens"] == 64
    assert stats["guessed_restarts"] == stats["inferred_restarts"]  # the former name


@pytest.mark.parametrize(
    ("given_", "error", "text"),
    [
        ({"rows": [0, 6]}, IndexError, "row 6 is not in this batch; it has 6 rows"),
        ({"rows": -7}, IndexError, "row -7 is not in this batch"),
        ({"rows": np.array([True])}, IndexError, "a mask of 1 entries; this batch has 6 rows"),
        ({"rows": [True, False]}, TypeError, "pass a mask as an array"),
        ({"rows": "01"}, TypeError, "rows is of type str"),
        ({"rows": [0, 1], "status": [200]}, ValueError, "status has 1 entries for 2 rows"),
        ({"rows": [0, 1], "status": [200, 99]}, ValueError, "status is 99"),
        ({"rows": [0], "tokens": -1}, ValueError, "tokens holds -1; it must be 0 or more"),
        ({"rows": [0], "tokens": 1.5}, TypeError, "tokens is of type float"),
        ({"rows": [0], "end": "finishd"}, ValueError, "did you mean finished"),
    ],
)
def test_a_mistake_finishes_nothing(given_: dict[str, Any], error: type[Exception], text: str) -> None:
    """mending row 43: arguments are checked before the first row ends."""
    router, batch = make()
    with pytest.raises(error, match=text):
        batch.finish(**given_)
    assert open_requests(router) == SIZE
    assert batch.finish() == SIZE


def test_an_index_is_an_int() -> None:
    """mending row 43: a slice of tickets is a list comprehension away, and the error says so."""
    _, batch = make()
    with pytest.raises(TypeError, match=r"finish\(rows=\.\.\.\)"):
        batch[1:2]
    with pytest.raises(IndexError, match="row 6"):
        batch[6]
    assert len(list(batch)) == SIZE
