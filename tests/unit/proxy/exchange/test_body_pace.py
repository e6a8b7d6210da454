"""cpp/proxy/exchange/body_pace.h: what counts as slow. Its twin: tests/models/body_pace.py."""

import pytest

from vllm_router import _core_testing as testing

SECOND = 10**9


@pytest.fixture
def pace():
    return testing.BodyPace(1024, 30_000)


def test_a_second_without_its_bytes_is_slow_and_one_with_them_is_not(pace):
    pace.arrived(66_000)
    pace.waited(SECOND)
    assert pace.rate == "moving"
    pace.waited(SECOND)
    assert pace.rate == "slow"
    pace.arrived(1023)
    assert pace.rate == "slow"
    pace.arrived(1)
    assert pace.rate == "moving"


def test_thirty_seconds_below_the_average_are_too_slow(pace):
    """mending row 10: a dripping client is not waited for for ever."""
    for _ in range(30):
        assert pace.rate != "too_slow"
        pace.waited(SECOND)
        pace.arrived(1000)
    assert pace.rate == "too_slow"


def test_a_burst_makes_up_for_pauses_in_its_window_only(pace):
    pace.arrived(30 * 1024)
    pace.waited(30 * SECOND)
    assert pace.rate == "slow"
    pace.waited(29 * SECOND)
    assert pace.rate == "slow"
    pace.waited(SECOND)
    assert pace.rate == "too_slow"


def test_what_a_second_must_bring_doubles_every_five(pace):
    """mending row 10: uploads just above the rate held the memory for bodies for as long as they liked."""
    for second in range(40):
        pace.arrived(1024 * 2 ** (second // 5) - (second >= 30))
        pace.waited(SECOND)
        assert pace.rate == ("slow" if second >= 30 else "moving")


def test_time_in_which_the_client_is_not_waited_for_does_not_count(pace):
    for _ in range(100):  # each byte is there when it is looked for
        pace.arrived(1)
        pace.waited(0)
    assert pace.rate == "moving"


def test_without_a_rate_everything_moves():
    pace = testing.BodyPace(0, 30_000)
    pace.waited(10**15)
    assert (pace.rate, pace.ms_to_next_step) == ("moving", 0)


def test_the_next_look_is_when_the_step_ends(pace):
    assert pace.ms_to_next_step == 1000
    pace.waited(300_500_000)
    assert pace.ms_to_next_step == 700  # 699.5, never early
