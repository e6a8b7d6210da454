"""cpp/routing/pd_bypass.h: which requests need no prefill worker."""

import pytest

from vllm_router import _core_testing as testing


def choose(*workers, uncached=256, queued=4096):
    """`workers`: (tokens to compute, queued tokens) or (…, open requests)."""
    rows = [(1.0, worker[2] if len(worker) > 2 else 0, worker[1], 0, worker[0]) for worker in workers]
    chosen = testing.choose_bypass(rows, uncached, queued)
    return None if chosen is None else chosen[0]


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        ((196, 0), 0),  # of 4,096 tokens it has 3,900
        ((2048, 0), None),
        ((196, 4000), None),  # its running requests would wait for 4,196
        ((196, 3900), 0),
        ((196, 3901), None),
        ((256, 0), 0),
        ((257, 0), None),
    ],
)
def test_the_examples_of_the_header(worker, expected):
    assert choose(worker) == expected


def test_the_worker_with_the_least_to_compute_is_chosen():
    assert choose((200, 0), (100, 0), (150, 0)) == 1


def test_of_equals_the_least_loaded_is_chosen():
    assert choose((100, 50), (100, 0), (100, 20)) == 1


def test_the_best_worker_decides_and_not_the_one_behind_it():
    # The second could take it; but the choice is of the least, whose queue is full.
    assert choose((100, 4000), (200, 0)) is None


def test_a_worker_without_room_is_passed_over():
    # Ten requests are open, so each of two may have ceil(1.25 * 11 / 2) = 7.
    assert choose((100, 0, 7), (200, 0, 3)) == 1
    assert choose((100, 0, 6), (200, 0, 4)) == 0


def test_without_a_threshold_or_a_worker_none_passes():
    assert choose((1, 0), uncached=0) is None
    assert choose() is None
