"""cpp/index/segment_lru.h against a time stamp per block."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

UNNAMED = 0  # in place of a run
TOUCHES = st.lists(st.tuples(st.integers(UNNAMED, 4), st.integers(1, 12)), max_size=40)


@given(TOUCHES, st.lists(st.integers(1, 6), max_size=30))
def test_blocks_go_by_last_use_and_from_the_tail(touches, amounts):
    lru, used = testing.SegmentLru(), {}
    for time, (run, end) in enumerate(touches):
        if run == UNNAMED:
            lru.add_unnamed(end)
            used.update({("unnamed", time, block): (time, -block) for block in range(end)})
            continue
        lru.touch(run, end)
        used.update({(run, block): (time, -block) for block in range(end)})
    for most in amounts:
        taken = lru.take_oldest(most)
        if taken is None:
            assert not used
            continue
        run, first, count = taken
        assert 1 <= count <= most
        for block in range(first + count - 1, first - 1, -1):
            oldest = min(used, key=used.__getitem__)
            assert oldest[0] == "unnamed" if run == UNNAMED else oldest == (run, block)
            del used[oldest]
        assert lru.unnamed == sum(key[0] == "unnamed" for key in used)
    assert lru.empty == (not used)


def test_the_drawing_of_the_header():
    lru = testing.SegmentLru()
    lru.touch(7, 8)
    lru.touch(9, 2)
    lru.touch(7, 3)
    assert lru.segments == 3
    assert [lru.take_oldest(2) for _ in range(6)] == [
        (7, 6, 2),
        (7, 4, 2),
        (7, 3, 1),
        (9, 0, 2),
        (7, 1, 2),
        (7, 0, 1),
    ]
    assert (lru.take_oldest(1), lru.empty, lru.segments) == (None, True, 0)


def test_touching_all_again_leaves_one_segment():
    lru = testing.SegmentLru()
    for end in (9, 5, 3, 1, 9):
        lru.touch(1, end)
    assert lru.segments == 1
    assert lru.take_oldest(100) == (1, 0, 9)


def test_unnamed_blocks_are_withdrawn_by_their_claim_alone():
    lru = testing.SegmentLru()
    first, second = lru.add_unnamed(4, 71), lru.add_unnamed(2, 72)
    lru.withdraw_unnamed(first, 72)
    lru.withdraw_unnamed(first, 0)
    lru.withdraw_unnamed(99, 71)
    assert (lru.take_oldest(3), lru.unnamed) == ((UNNAMED, 0, 3), 3)
    lru.withdraw_unnamed(first, 71)
    assert (lru.unnamed, lru.segments) == (2, 1)
    lru.withdraw_unnamed(first, 71)
    assert lru.take_oldest(3) == (UNNAMED, 0, 2)
    lru.withdraw_unnamed(second, 72)
    assert (lru.unnamed, lru.empty) == (0, True)


def test_a_segment_that_was_evicted_and_used_again_is_not_withdrawn():
    lru = testing.SegmentLru()
    segment = lru.add_unnamed(4, 71)
    assert lru.take_oldest(4) == (UNNAMED, 0, 4)
    lru.touch(7, 3)
    lru.withdraw_unnamed(segment, 71)
    assert lru.take_oldest(9) == (7, 0, 3)
    assert lru.add_unnamed(5, 72) == segment
    lru.withdraw_unnamed(segment, 71)
    assert lru.unnamed == 5
