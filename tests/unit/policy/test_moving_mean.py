"""cpp/policy/moving_mean.h: a plain mean at first, a moving one later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.moving_mean import MovingMean
from vllm_router import _core_testing as testing

MEMORY = testing.MOVING_MEAN_MEMORY


def test_it_begins_as_the_plain_mean():
    mean = testing.MovingMean()
    assert mean.value == 0
    for seen in (10, 20, 60):
        mean.learn(seen)
    assert mean.value == 30


def test_what_was_long_ago_is_forgotten():
    mean = testing.MovingMean()
    for _ in range(MEMORY):
        mean.learn(1000)
    mean.learn(0)
    assert mean.value == pytest.approx(990)
    for _ in range(20 * MEMORY):
        mean.learn(10)
    assert mean.value == pytest.approx(10, rel=1e-3)


@given(st.lists(st.floats(0, 1e6), max_size=3 * MEMORY))
def test_it_is_as_its_twin(values):
    mean, twin = testing.MovingMean(), MovingMean(MEMORY)
    for seen in values:
        mean.learn(seen)
        twin.learn(seen)
        assert mean.value == twin.value
