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


def test_neutral_answers_neither_count_nor_interrupt():
    one = breaker()
    for verdict in ("failure", "neutral", "failure", "neutral"):
        assert say(one, verdict) is None
    assert say(one, "failure") == ("closed", "open")


def test_a_failure_counts_for_the_window_only():
    one = breaker()
    assert say(one, "failure", 0.0) is None
    assert say(one, "failure", 100.0) is None
    assert say(one, "failure", 121.0) is None  # the first is too old
    assert say(one, "failure", 122.0) == ("closed", "open")


def test_it_stays_open_for_its_time():
    one = opened(at=10.0)
    assert one.come_due(69.9) is None
    assert one.come_due(70.0) == ("open", "half_open")
    assert one.come_due(71.0) is None


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


def test_a_probe_whose_client_leaves_only_makes_room_for_the_next():
    one = half_open()
    one.try_pass().drop()
    assert one.state == "half_open"
    assert one.try_pass() is not None


def test_answers_to_what_was_sent_before_say_nothing_any_more():
    one = breaker()
    old = [one.try_pass() for _ in range(10)]
    for _ in range(3):
        say(one, "failure")
    assert one.state == "open"
    assert [ticket.settle("success", 1.0) for ticket in old[:5]] == [None] * 5
    one.come_due(60.0)
    assert [ticket.settle("failure", 61.0) for ticket in old[5:]] == [None] * 5
    assert one.state == "half_open"


def test_answers_that_break_off_open_it_although_each_began_well():
    one = breaker()
    for _ in range(2):
        ticket = one.try_pass()
        assert ticket.settle("success", 0.0) is None
        assert ticket.settle_end(True, 0.0) is None
    ticket = one.try_pass()
    ticket.settle("success", 0.0)
    assert ticket.settle_end(True, 0.0) == ("closed", "open")


def test_a_whole_answer_ends_their_row():
    one = breaker()
    for broke_off in (True, True, False, True, True):
        ticket = one.try_pass()
        ticket.settle("success", 0.0)
        assert ticket.settle_end(broke_off, 0.0) is None


def test_a_worker_that_was_not_there_gets_its_probe_when_its_health_check_answers():
    one = breaker()
    one.not_reached()
    for _ in range(3):
        say(one, "failure")
    assert one.reached() == ("open", "half_open")


def test_a_worker_that_answered_badly_waits_whatever_its_health_check_says():
    one = opened()
    assert one.reached() is None
    assert one.state == "open"


def test_what_must_not_open_it_is_counted_all_the_same():
    """mending row 2: half of the fleet is open already."""
    one = breaker()
    for now in range(10):
        assert one.try_pass().settle("failure", now, may_open=False) is None
    assert one.held_closed
    assert say(one, "failure", 10.0) == ("closed", "open")


def test_a_held_probe_keeps_its_place_for_a_while():
    """mending row 2: whether its 5xx counts is known later."""
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


def test_a_held_probe_that_is_settled_opens_it_again():
    one = half_open()
    probe = one.try_pass()
    probe.hold(61.0)
    assert probe.settle("failure", 62.0) == ("half_open", "open")


def test_in_panic_mode_a_success_makes_an_open_one_half_open():
    """mending row 2"""
    one = opened(at=0.0)
    assert one.pass_in_panic().settle("success", 1.0) == ("open", "half_open")
    assert say(one, "success", 2.0) is None
    assert one.pass_in_panic().settle("success", 3.0) == ("half_open", "closed")


def test_in_panic_mode_a_failure_makes_it_the_one_opened_last():
    one = opened(at=5.0)
    assert one.opened_at == 5.0
    assert one.pass_in_panic().settle("failure", 7.0) is None
    assert (one.state, one.opened_at) == ("open", 7.0)


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
