"""cpp/admission/dispatch_rate.h: how fast a queue moves, and when a rejected client may come again."""

import pytest

from vllm_router import _core_testing as testing

SECOND = 1_000_000_000


def test_a_steady_stream_is_its_own_rate():
    rate = testing.DispatchRate()
    assert rate.at(0) == 0
    for tenth in range(3000):
        rate.add(50, tenth * SECOND // 10)
    assert rate.at(300 * SECOND) == pytest.approx(500, rel=0.02)
    assert rate.at(330 * SECOND) == pytest.approx(500 / 2.71828, rel=0.02)
    assert rate.at(0) == pytest.approx(500, rel=0.02)  # a time that was before is no time


@pytest.mark.parametrize(
    ("cost", "rate", "seconds"),
    [(0, 100.0, 1), (1, 100.0, 1), (250, 100.0, 3), (10**9, 100.0, 60), (500, 0.0, 1)],
    ids=["nothing", "little", "some", "much", "unknown"],
)
def test_retry_after(cost, rate, seconds):
    assert testing.retry_after_ns(cost, rate, 0.0) == seconds * SECOND
    assert testing.retry_after_ns(cost, rate, 1.0) == seconds * SECOND * 5 // 4
