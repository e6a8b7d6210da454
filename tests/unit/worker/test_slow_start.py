"""cpp/worker/slow_start.h"""

import pytest

from vllm_router import _core_testing as testing


@pytest.mark.parametrize(
    ("since", "share"), [(-1, 100), (0, 100), (5, 250), (15, 550), (29, 970), (30, 1000), (99, 1000)]
)
def test_a_share_grows_from_a_tenth_to_its_whole(since, share):
    assert testing.slow_start_factor_at(since, 30) == share


def test_without_a_window_it_is_whole_at_once():
    assert testing.slow_start_factor_at(0, 0) == 1000
