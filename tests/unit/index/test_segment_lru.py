"""cpp/index/segment_lru.h against a time stamp per block."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

TOUCHES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 12)), max_size=40)


@given(TOUCHES, st.lists(st.integers(1, 6), max_size=30))
def test_blocks_go_by_last_use_and_from_the_tail(touches, amounts):
    lru, used = testing.SegmentLru(), {}
    for time, (run, end) in enumerate(touches):
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
            assert min(used, key=used.__getitem__) == (run, block)
            del used[run, block]
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
