"""cpp/index/block_matches.h: which match is the best."""

import pytest

from vllm_router import _core_testing as testing

ENTRIES = [(7, (4, 4, 4)), (2, (2, 5, 5)), (9, (0, 0, 5)), (1, (2, 5, 5)), (3, (3, 3, 3))]


@pytest.mark.parametrize(
    ("eligible", "best"),
    [
        (None, 1),  # five blocks, as many on the GPU as w2, and the smaller number
        ([2, 9], 2),  # five blocks, more of them on fast tiers
        ([7, 9], 9),  # more blocks come before faster ones
        ([3, 7], 7),
        ([3], 3),
        ([5], None),
        ([], None),
    ],
)
def test_most_blocks_then_faster_tiers_then_the_smallest_owner(eligible, best):
    assert testing.best_match(ENTRIES, eligible) == best
    assert testing.best_match(ENTRIES[::-1], eligible) == best


def test_of_no_entries_none_is_best():
    assert testing.best_match([], None) is None
