"""cpp/worker/circuit_breaker.h. The twin is compared in tests/property/."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def breaker(**options):
    return testing.CircuitBreaker(
        **{"failure_threshold": 3, "success_threshold": 2, "open_secs": 60.0, "window_secs": 120.0, **options}
    )


def say(one, verdict, now=0.0):
    return one.try_pass().settle(verdict, now)


def opened(at=0.0, **options):
    one = breaker(**options)
    for _ in range(3):
        change = say(one, "failure", at)
    assert change == ("closed", "open")
    return one


def half_open():
    one = opened()
    assert one.come_due(60.0) == ("open", "half_open")
    return one


def test_it_opens_after_so_many_failures_in_a_row():
    one = breaker()
    assert [say(one, verdict) for verdict in ("failure", "failure", "success", "failure", "failure")] == [
        None
    ] * 5
    assert say(one, "failure") == ("closed", "open")
    assert one.try_pass() is None


def test_half_open_lets_one_through_at_a_time():
    one = half_open()
    probe = one.try_pass()
    assert probe.probe
    assert [one.try_pass() for _ in range(50)] == [None] * 50
    assert not one.admits
    assert probe.settle("success", 61.0) is None
    assert one.try_pass().settle("success", 62.0) == ("half_open", "closed")


def test_any_failure_opens_it_again():
    one = half_open()
    assert say(one, "success", 61.0) is None
    assert say(one, "failure", 62.0) == ("half_open", "open")
    assert one.come_due(121.0) is None  # a whole time from then
    assert one.come_due(122.0) == ("open", "half_open")
    assert say(one, "success", 122.0) is None  # the one before does not count any more


def test_a_held_probe_keeps_its_place_for_a_while():
    """Whether its 5xx counts is known later."""
    one = half_open()
    probe = one.try_pass()
    probe.hold(61.0)
    assert not one.admits
    assert one.come_due(120.9) is None
    assert not one.admits
    assert one.come_due(121.0) is None
    assert one.admits
    second = one.try_pass()
    assert probe.settle("failure", 122.0) is None  # too late
    probe.drop()
    assert not one.admits  # the place is the second's
    assert second.settle("failure", 123.0) == ("half_open", "open")


def test_disabled_it_never_opens():
    one = breaker(disabled=True)
    assert [say(one, "failure") for _ in range(20)] == [None] * 20


@for_each_row(
    ("status", "retry_after", "verdict"),
    [
        (200, False, "success"),
        (404, False, "success"),
        (422, False, "success"),
        (408, False, "neutral"),
        (429, False, "neutral"),
        (500, False, "server_error"),
        (501, False, "neutral"),
        (502, True, "server_error"),
        (503, False, "server_error"),
        (503, True, "neutral"),
        (504, False, "server_error"),
        (505, False, "neutral"),
        (507, False, "server_error"),
    ],
)
def test_what_a_status_says_of_its_worker(status, retry_after, verdict):
    assert testing.verdict_of(status, retry_after) == verdict


def test_a_clock_that_jumps_back_opens_nothing_early_and_loses_no_failure():
    one = opened(at=1000.0)
    assert one.come_due(10.0) is None
    assert one.come_due(1060.0) == ("open", "half_open")
    one = breaker()
    assert say(one, "failure", 1000.0) is None
    assert say(one, "failure", 10.0) is None
    assert say(one, "failure", 1001.0) == ("closed", "open")
