"""cpp/net/timer_wheel.h, against a list of deadlines that is obviously right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

TICK = 100  # milliseconds
TURN = 1024 * TICK


def run(wheel, milliseconds):
    """Ticks as the loop does; what fired, with the time of the tick."""
    fired = []
    for _ in range(milliseconds // TICK):
        wheel.tick(TICK)
        fired += [(wheel.now_ms, name) for name in wheel.take_fired()]
    return fired


@for_each_row("delay", [1, 99, 100, 101, 250, 5_000, TURN - 1, TURN, TURN + 1, 5 * TURN + 37])
@for_each_row("start", [0, 1, 50, 99, 123_456_789])
def test_a_timer_fires_once_up_to_a_tick_late_and_never_early(start, delay):
    wheel = testing.TimerWheel(start)
    wheel.arm(1, delay)
    fired = run(wheel, delay + 3 * TICK)
    assert [name for _, name in fired] == [1]
    assert start + delay <= fired[0][0] < start + delay + 2 * TICK
    assert not wheel.is_armed(1)


def test_zero_means_never():
    wheel = testing.TimerWheel()
    wheel.arm(1, 0)
    assert not wheel.is_armed(1)
    assert (wheel.armed, wheel.wakes) == (0, 0)


def test_zero_disarms():
    wheel = testing.TimerWheel()
    wheel.arm(1, 500)
    wheel.arm(1, 0)
    assert not wheel.is_armed(1)
    assert run(wheel, 1000) == []


def test_arming_again_replaces_the_deadline():
    wheel = testing.TimerWheel()
    wheel.arm(1, 200)
    wheel.arm(1, 1000)
    assert wheel.armed == 1
    assert [name for _, name in run(wheel, 900)] == []
    assert [name for _, name in run(wheel, 300)] == [1]


def test_a_disarmed_timer_does_not_fire():
    wheel = testing.TimerWheel()
    for name in range(10):
        wheel.arm(name, 300)
    for name in range(0, 10, 2):
        wheel.disarm(name)
        wheel.disarm(name)  # twice does no harm
    assert wheel.armed == 5
    assert sorted(name for _, name in run(wheel, 500)) == [1, 3, 5, 7, 9]


def test_a_dropped_timer_does_not_fire():
    wheel = testing.TimerWheel()
    wheel.arm(1, 300)
    wheel.arm(2, 300)
    wheel.drop(1)
    assert [name for _, name in run(wheel, 500)] == [2]
    assert wheel.armed == 0


def test_timers_of_one_slot_and_different_turns_fire_in_their_turns():
    wheel = testing.TimerWheel()
    for turns in (2, 0, 1):
        wheel.arm(turns, 500 + turns * TURN)
    assert [name for _, name in run(wheel, 3 * TURN)] == [0, 1, 2]


def test_a_late_tick_fires_everything_that_is_due():
    wheel = testing.TimerWheel()
    for name in range(1, 30):
        wheel.arm(name, name * TICK)
    wheel.tick(20 * TICK)
    assert wheel.take_fired() == list(range(1, 21))


def test_a_very_late_tick_visits_every_slot():
    wheel = testing.TimerWheel()
    for name in range(1, 40):
        wheel.arm(name, name * 7777)
    wheel.tick(3 * TURN)
    assert sorted(wheel.take_fired()) == list(range(1, 40))
    assert wheel.armed == 0


def test_the_wheel_is_woken_only_when_it_goes_from_empty_to_armed():
    wheel = testing.TimerWheel()
    wheel.arm(1, 300)
    wheel.arm(2, 500)
    assert wheel.wakes == 1
    assert wheel.tick(TICK) is True
    run(wheel, 1000)
    assert wheel.tick(TICK) is False  # the owner stops ticking
    wheel.arm(3, 100)
    assert wheel.wakes == 2


def test_after_a_long_sleep_of_the_wheel_a_deadline_counts_from_now():
    wheel = testing.TimerWheel()
    wheel.arm(1, 100)
    run(wheel, 300)
    assert wheel.tick(1_000_000) is False  # nobody ticked meanwhile
    wheel.arm(2, 300)
    start = wheel.now_ms
    fired = run(wheel, 1000)
    assert [name for _, name in fired] == [2]
    assert start + 300 <= fired[0][0] <= start + 300 + 2 * TICK


def test_a_callback_may_arm_its_own_timer_again():
    wheel = testing.TimerWheel()
    wheel.when_fired(1, "arm", 1, 200)
    wheel.arm(1, 200)
    assert len(run(wheel, 2000)) in (9, 10)
    assert wheel.armed == 1


@pytest.mark.parametrize("what", ["disarm", "drop"])
def test_a_callback_may_disarm_or_drop_another_that_is_due_in_the_same_tick(what):
    wheel = testing.TimerWheel()
    wheel.when_fired(1, what, 2)
    for name in (1, 2, 3):
        wheel.arm(name, 300)
    assert [name for _, name in run(wheel, 500)] == [1, 3]
    assert wheel.armed == 0


def test_a_callback_may_drop_its_own_timer():
    wheel = testing.TimerWheel()
    wheel.when_fired(1, "arm", 2, 100)
    wheel.when_fired(2, "arm", 1, 100)
    wheel.arm(1, 100)
    assert len({name for _, name in run(wheel, 1000)}) == 2


def test_timers_that_outlive_the_wheel_are_disarmed():
    wheel = testing.TimerWheel()
    for name in range(5):
        wheel.arm(name, 1000 * name + 100)
    wheel.drop_wheel()
    assert [wheel.is_armed(name) for name in range(5)] == [False] * 5
    wheel.disarm(1)
    wheel.drop(2)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), st.integers(0, 9), st.integers(0, 3 * TURN)),
        st.tuples(st.just("arm"), st.integers(0, 9), st.integers(0, 1000)),
        st.tuples(st.just("disarm"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("tick"), st.just(0), st.integers(0, 2000)),
        st.tuples(st.just("tick"), st.just(0), st.integers(0, 2 * TURN)),
    ),
    max_size=60,
)


@given(ACTIONS, st.integers(0, 10**9))
def test_it_agrees_with_a_plain_list_of_deadlines(actions, start):
    wheel = testing.TimerWheel(start)
    deadlines: dict[int, int] = {}
    for action, name, number in actions:
        if action == "arm":
            wheel.arm(name, number)
            deadlines.pop(name, None)
            if number > 0:
                deadlines[name] = wheel.now_ms + number
        elif action == "disarm":
            wheel.disarm(name)
            deadlines.pop(name, None)
        else:
            wheel.tick(number)
            fired = set(wheel.take_fired())
            now = wheel.now_ms
            surely = {timer for timer, due in deadlines.items() if due + 2 * TICK <= now}
            perhaps = {timer for timer, due in deadlines.items() if due <= now}
            assert surely <= fired <= perhaps
            for timer in fired:
                del deadlines[timer]
        assert wheel.armed == len(deadlines)
        assert {timer for timer in range(10) if wheel.is_armed(timer)} == set(deadlines)
