"""cpp/index/load_bound.h: caps, worked by hand."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


@pytest.mark.parametrize(
    ("workers", "total", "cap"), [(4, 10, 4), (4, 0, 1), (4, 3, 2), (8, 99, 16), (3, 10, 5), (1, 0, 2)]
)
def test_caps_of_equal_workers_at_a_quarter_above_the_average(workers, total, cap):
    assert testing.load_cap(total, workers * 1000, 1250, 1000) == cap


def test_a_cap_is_in_proportion_to_the_weight():
    # 12 requests and one more over weights 1 and 3: shares 3.25 and 9.75, caps 4.06 and 12.19, rounded up.
    assert [testing.load_cap(12, 4000, 1250, weight) for weight in (1000, 3000)] == [5, 13]


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(10, 100_000)), min_size=1, max_size=20),
    st.integers(1000, 11_000),
)
def test_caps_are_the_exact_ratio_rounded_up_and_somebody_is_below_his(workers, factor):
    total = sum(load for load, _ in workers)
    weights = sum(weight for _, weight in workers)
    caps = [testing.load_cap(total, weights, factor, weight) for _, weight in workers]
    assert caps == [
        ceil(Fraction(factor, 1000) * (total + 1) * Fraction(weight, weights)) for _, weight in workers
    ]
    assert any(load < cap for (load, _), cap in zip(workers, caps, strict=True))


def test_the_largest_total_and_weight_do_not_overflow():
    total, weight = 10**10, 100_000
    assert testing.load_cap(total, weight, 11_000, weight) == 11 * (total + 1)
