"""cpp/policy/load_order.h: who is less loaded, and who has room."""

import math
from fractions import Fraction

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def fleet(*loads, weights=None):
    """Loads are (open requests, queued prefill, expected output)."""
    policy = testing.PolicyHarness("least_load")
    for i, load in enumerate(loads):
        policy.add(f"http://w{i}", weights[i] if weights else 1.0)
        policy.set_load(f"http://w{i}", *load)
    return policy


@pytest.mark.parametrize(
    ("factor", "requests", "workers", "cap"),
    [
        (1250, 10, 4, 4),
        (1250, 0, 4, 1),
        (1250, 3, 4, 2),
        (1250, 99, 8, 16),
        (1000, 7, 4, 2),
        (1000, 8, 4, 3),
        (10_000, 0, 1, 10),
    ],
)
def test_the_cap_of_the_document_examples(factor, requests, workers, cap):
    loads = [(requests, 0, 0)] + [(0, 0, 0)] * (workers - 1)
    assert fleet(*loads).caps(factor) == [cap] * workers


def test_caps_are_proportional_to_weight():
    assert fleet((9, 0, 0), (0, 0, 0), weights=[1, 3]).caps(1000) == [3, 8]  # ceil(10/4), ceil(30/4)


@for_each_row("weights", [[1, 1, 1], [0.01, 100, 1], [0.333, 2.5, 7]])
@for_each_row("factor", [1000, 1001, 1250, 10_000])
def test_somebody_always_has_room(weights, factor):
    for requests in ([0, 0, 0], [5, 1, 0], [1000, 1000, 1000], [0, 12345, 3]):
        policy = fleet(*((r, 0, 0) for r in requests), weights=weights)
        caps = policy.caps(factor)
        assert caps == [
            math.ceil(
                Fraction(factor, 1000)
                * (sum(requests) + 1)
                * Fraction(str(w))
                / sum(Fraction(str(x)) for x in weights)
            )
            for w in weights
        ]
        assert any(r < cap for r, cap in zip(requests, caps, strict=True))


def test_only_the_eligible_count():
    policy = fleet((9, 0, 0), (0, 0, 0), (0, 0, 0))
    policy.set_healthy("http://w0", False)
    assert policy.caps(1250)[1:] == [1, 1]


def test_who_is_less_loaded():
    policy = fleet((2, 400, 500), (1, 5000, 0), (1, 0, 700), (1, 700, 0))
    assert policy.compare_load(0, 1) == 1
    assert policy.compare_load(1, 0) == -1
    assert policy.compare_load(2, 1) == -1
    assert policy.compare_load(2, 3) == 0
    assert policy.compare_load(0, 1, "tokens") == -1
    assert policy.compare_load(3, 0, "tokens") == -1


def test_the_largest_loads_and_weights_do_not_overflow():
    huge = 2**62
    policy = fleet((1, huge, 0), (10_000, huge // 2, huge // 2 + 1), weights=[0.01, 100])
    assert policy.compare_load(0, 1) == 1  # 100 requests per weight on both; then tokens per weight
    assert policy.compare_load(0, 1, "tokens") == 1
