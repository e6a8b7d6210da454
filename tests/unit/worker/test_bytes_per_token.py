"""cpp/worker/bytes_per_token.h"""

import pytest

from vllm_router import _core_testing as testing


def test_it_begins_with_four_and_comes_near_what_is_reported():
    """mending row 34: four bytes a token were believed of every model."""
    learned = testing.BytesPerToken()
    assert learned.value == 4
    for _ in range(40):
        learned.learn(2100, 1000)
    assert learned.value == pytest.approx(2.1, abs=0.1)


def test_a_short_prompt_moves_little():
    learned = testing.BytesPerToken()
    learned.learn(5, 30)  # nearly all of it is the chat template
    assert learned.value == pytest.approx(4 - 3 * 30 / 1054)


@pytest.mark.parametrize(("reported", "least", "most"), [((10**12, 1), 4.0, 4.1), ((1, 10**12), 1.0, 1.1)])
def test_no_report_moves_it_out_of_bounds(reported, least, most):
    learned = testing.BytesPerToken()
    learned.learn(*reported)
    assert least <= learned.value <= most
    for _ in range(100000):
        learned.learn(*reported)
    assert 1 <= learned.value <= 16


@pytest.mark.parametrize("reported", [(0, 5), (5, 0), (0, 0)])
def test_nothing_says_nothing(reported):
    learned = testing.BytesPerToken()
    learned.learn(*reported)
    assert learned.value == 4
