"""cpp/index/shared_hits.h."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


def test_the_example_of_the_header():
    hits = testing.SharedHits([(5, 9), (0, 2)])
    assert hits.ranges() == [(0, 2), (5, 9)]
    assert hits.total() == 6
    assert [hits.beyond(n) for n in (1, 2, 6, 8, 9, 100)] == [5, 4, 3, 1, 0, 0]


def test_a_pool_without_the_prompt():
    for ranges in ([], [(3, 3)], [(4, 2)]):
        hits = testing.SharedHits(ranges)
        assert (hits.ranges(), hits.total(), hits.beyond(0)) == ([], 0, 0)


def test_the_last_block_there_may_be():
    hits = testing.SharedHits([(0, 2**32 - 1)])
    assert hits.total() == 2**32 - 1
    assert hits.beyond(2**32 - 2) == 1
    assert hits.beyond(2**64 - 1) == 0


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=6))
def test_it_counts_as_a_set_does(ranges):
    blocks = {block for begin, end in ranges for block in range(begin, end)}
    hits = testing.SharedHits(ranges)
    assert {block for begin, end in hits.ranges() for block in range(begin, end)} == blocks
    for n in range(22):
        assert hits.beyond(n) == sum(block >= n for block in blocks)
    assert all(before[1] < after[0] for before, after in zip(hits.ranges(), hits.ranges()[1:], strict=False))
