"""cpp/proxy/telemetry/buckets.h: which times and shares a histogram tells apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.scrapes import CHAT, exchange, page_of
from vllm_router import Router
from vllm_router import _core_testing as testing

DURATION_BOUNDS = [
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180, 240),
    float("inf"),
]


def test_the_buckets_of_durations_are_the_references():
    page = page_of(testing.Lanes(Router(policy="random")))
    assert list(page["generate_duration_seconds"].histogram().buckets) == DURATION_BOUNDS


@given(st.integers(0, 10**12))
def test_a_time_falls_into_the_first_bucket_that_is_not_smaller(nanos):
    lanes = testing.Lanes(Router(policy="random"))
    lanes.record(0, **exchange(head_ns=1, end_ns=1 + nanos))
    histogram = page_of(lanes)["request_duration_seconds"].histogram(route=CHAT)
    assert histogram.buckets == {bound: int(nanos <= bound * 10**9) for bound in DURATION_BOUNDS}
    assert histogram.sum == pytest.approx(nanos / 1e9)
