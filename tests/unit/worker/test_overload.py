"""cpp/worker/overload.h: when a worker is passed over for its load. Requests: test_load_poller.py."""

import pytest

from vllm_router import _core_testing as testing


def over(waiting=0, kv_use=None, was=False, waiting_above=0, kv_above=0.0):
    return testing.is_overloaded(waiting_above, kv_above, waiting, kv_use, was)


@pytest.mark.parametrize(
    ("waiting", "was", "expected"),
    [(32, False, False), (33, False, True), (26, True, True), (25, True, False), (26, False, False)],
)
def test_a_queue_has_hysteresis(waiting, was, expected):
    assert over(waiting, was=was, waiting_above=32) is expected


@pytest.mark.parametrize(
    ("kv_use", "was", "expected"),
    [(0.9, False, False), (0.91, False, True), (0.73, True, True), (0.72, True, False), (None, True, False)],
)
def test_so_has_the_cache(kv_use, was, expected):
    assert over(kv_use=kv_use, was=was, kv_above=0.9) is expected


def test_what_is_off_or_not_known_is_no_reason():
    assert not over(10**9, 1.0)
    assert not over(10**9, None, kv_above=0.5)
    assert over(2, 0.1, waiting_above=1, kv_above=0.5)
    assert over(0, 0.6, waiting_above=1, kv_above=0.5)
