"""cpp/routing/scale_signals.h. The twin is compared in tests/property/."""

import pytest

from vllm_router import _core_testing as testing

OPTIONS = testing.ScaleOptions()


def seen(**members):
    made = testing.ScaleInput()
    for name, value in members.items():
        setattr(made, name, value)
    return made


def at(signals, now, options=OPTIONS, **members):
    """The number of replicas desired."""
    return signals.update(seen(**members), options, float(now))[1]


def over(signals, seconds, options=OPTIONS, **members):
    """What is desired, second by second."""
    return [at(signals, now, options, **members) for now in seconds]


FOUR = {"ready": 4, "slots": 40.0}


def test_an_idle_fleet_never_scales_up():
    """Whatever is known of it: slots, caches, a prefill rate, or nothing at all."""
    for known in ({}, {"slots": 40.0}, {"kv_use": 0.0, "polls_kv": True}, {"prefill_seconds": 0.0}):
        signals = testing.ScaleSignals()
        wanted = over(signals, range(1000), ready=4, **known)
        assert wanted[:300] == [4] * 300
        assert wanted[300:] == [0] * 700


def test_what_a_fleet_needs_is_its_saturation_by_the_target():
    for requests, replicas in ((0, 4), (32, 4), (33, 5), (40, 5), (64, 8), (80, 10), (400, 10)):
        signals = testing.ScaleSignals()
        assert over(signals, range(40), requests=requests, **FOUR)[-1] == replicas


def test_one_prompt_or_one_engine_that_tells_nonsense_is_no_reason_for_many_replicas():
    # Eighteen seconds of prompts for three seconds.
    signals = testing.ScaleSignals()
    over(signals, range(60), requests=1, prefill_seconds=0.0, ready=4)
    over(signals, range(60, 63), requests=1, prefill_seconds=17.8, ready=4)
    assert at(signals, 63, requests=1, prefill_seconds=0.0, ready=4) == 4
    signals = testing.ScaleSignals()
    assert max(over(signals, range(40), requests=1_000_000, **FOUR)) == 10


def test_replicas_that_are_down_take_places_that_are_wanted():
    signals = testing.ScaleSignals()
    assert over(signals, range(600), requests=40, **FOUR)[-1] == 5
    after = over(signals, range(600, 1200), requests=15, queued=20, slots=10.0, ready=1, down=3)
    assert min(after) == 5
    # Nothing wants them without load.
    assert over(signals, range(1200, 1900), slots=10.0, ready=1, down=3)[-1] == 0


def test_a_cache_that_is_full_of_what_has_ended_is_no_load():
    signals = testing.ScaleSignals()
    assert over(signals, range(400), ready=1, kv_use=1.0, polls_kv=True)[-1] == 0


def test_a_request_that_waits_for_a_first_worker_keeps_one_wanted():
    signals = testing.ScaleSignals()
    assert over(signals, range(1000), demand=7, waiting=1) == [1] * 1000
    assert over(signals, range(1000, 1400), demand=7)[-1] == 0


def test_replicas_that_may_be_of_another_model_are_not_wanted():
    signals = testing.ScaleSignals()
    assert at(signals, 0, ready=1, unknown=8, slots=10.0) == 1
    signals = testing.ScaleSignals()
    assert signals.update(seen(unknown=2), OPTIONS, 0.0)[1:] == (0, True)


@pytest.mark.parametrize(
    ("known", "saturation"),
    [
        ({"requests": 20, "slots": 40.0}, 0.5),
        ({"requests": 20, "prefill_seconds": 0.9}, 0.9),
        ({"requests": 20, "kv_use": 0.7}, 0.7),
        ({"requests": 20, "slots": 40.0, "prefill_seconds": 0.4, "kv_use": 0.6}, 0.6),
    ],
)
def test_the_largest_share_that_is_known_is_the_saturation(known, saturation):
    signals = testing.ScaleSignals()
    assert signals.update(seen(ready=1, **known), OPTIONS, 0.0) == (
        saturation,
        1 if saturation <= 0.8 else 2,
        False,
    )


def test_prefill_is_measured_by_the_wait_that_is_wanted():
    signals = testing.ScaleSignals()
    patient = testing.ScaleOptions(target_wait_secs=4.0)
    assert signals.update(seen(ready=1, requests=1, prefill_seconds=2.0), patient, 0.0)[0] == 0.5


def test_load_that_nothing_is_compared_with_says_nothing():
    signals = testing.ScaleSignals()
    assert signals.update(seen(ready=3, requests=900, queued=70), OPTIONS, 0.0) == (0.0, 3, True)
    assert signals.update(seen(ready=3, queued=70), OPTIONS, 1.0) == (0.0, 3, True)


def test_it_rises_at_once_and_falls_after_five_minutes_of_less():
    signals = testing.ScaleSignals()
    over(signals, range(100), requests=32, **FOUR)
    rising = over(signals, range(100, 140), requests=64, **FOUR)
    assert rising[0] == 5  # the mean of 30 s moves with each second
    assert rising[-1] == 8
    assert rising == sorted(rising)
    falling = over(signals, range(140, 600), requests=8, **FOUR)
    low = falling.index(7)
    assert 300 <= low <= 306  # the mean falls, too
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == 1


def test_a_short_burst_within_five_minutes_of_less_keeps_what_is_there():
    signals = testing.ScaleSignals()
    over(signals, range(40), requests=32, **FOUR)
    over(signals, range(40, 300), requests=8, **FOUR)
    over(signals, range(300, 340), requests=32, **FOUR)
    assert set(over(signals, range(340, 620), requests=8, **FOUR)) == {4}


def test_a_replica_that_joins_does_not_raise_what_is_desired():
    """The mean of the saturation alone, times more replicas, would: 5 x 1.0 / 0.8."""
    signals = testing.ScaleSignals()
    assert over(signals, range(100), requests=40, **FOUR)[-1] == 5
    joined = over(signals, range(100, 200), requests=40, ready=5, slots=50.0)
    assert set(joined) == {5}


def test_minimum_and_maximum_hold_whatever_is_known():
    signals = testing.ScaleSignals()
    bounds = testing.ScaleOptions(min=2, max=6)
    assert set(over(signals, range(50), bounds, requests=400, **FOUR)) == {6}
    assert over(signals, range(50, 450), bounds, ready=0)[-1] == 2
    assert at(signals, 450, testing.ScaleOptions(min=3), ready=0) == 3
    assert at(signals, 451, bounds, ready=0, pending=1) == 3  # another minimum does not shorten the wait


def test_demand_holds_one_replica_for_a_minute():
    signals = testing.ScaleSignals()
    assert set(over(signals, range(10), demand=7)) == {0}  # what was counted before is no demand now
    assert at(signals, 10, demand=8) == 1
    assert set(over(signals, range(11, 370), demand=8)) == {1}  # until the five minutes after that minute end
    assert at(signals, 371, demand=8) == 0
    assert at(signals, 372, demand=0) == 0  # it was counted anew
    assert at(signals, 373, testing.ScaleOptions(max=1), demand=5) == 1


def test_replicas_that_start_are_not_taken_away_while_none_is_ready():
    signals = testing.ScaleSignals()
    over(signals, range(5))
    assert at(signals, 5, demand=1) == 1
    for now in range(6, 2000):
        assert signals.update(seen(pending=1, demand=1), OPTIONS, float(now))[1:] == (1, True)


def test_a_fleet_that_looks_dead_keeps_its_size():
    """As from a router that is cut off: no autoscaler may take the workers away that it cannot see."""
    signals = testing.ScaleSignals()
    over(signals, range(50), requests=32, **FOUR)
    for now in range(50, 2000):
        assert signals.update(seen(down=4), OPTIONS, float(now))[1:] == (4, True)


def test_what_was_known_and_is_missing_makes_it_stale_and_not_less():
    signals = testing.ScaleSignals()
    kv = {"ready": 4, "requests": 4, "slots": 40.0, "polls_kv": True}
    assert over(signals, range(50), kv_use=0.8, **kv)[-1] == 4
    for now in range(50, 1000):
        saturation, desired, stale = signals.update(seen(**kv), OPTIONS, float(now))
        assert (round(saturation, 9), desired, stale) == (0.8, 4, True)
    # It is told again, and says less: the five minutes begin only now.
    assert over(signals, range(1000, 1298), kv_use=0.1, **kv)[-1] == 4
    assert over(signals, range(1298, 1400), kv_use=0.1, **kv)[-1] == 1


def test_what_nothing_asks_for_any_more_is_not_missed():
    signals = testing.ScaleSignals()
    known = {"ready": 4, "requests": 4, "slots": 40.0}
    at(signals, 0, kv_use=0.8, polls_kv=True, **known)
    assert signals.update(seen(**known), OPTIONS, 1.0)[2] is False


def test_other_routers_that_are_not_heard_make_it_stale():
    signals = testing.ScaleSignals()
    over(signals, range(50), requests=32, **FOUR)
    for now in range(50, 1000):
        assert signals.update(seen(hears_routers=False, requests=1, **FOUR), OPTIONS, float(now))[1:] == (
            4,
            True,
        )


def test_a_restarted_router_wants_what_is_there():
    signals = testing.ScaleSignals()
    assert at(signals, 0, ready=3, pending=2, down=1, slots=30.0) == 6


def test_nothing_is_desired_without_bound():
    signals = testing.ScaleSignals()
    assert at(signals, 0, ready=4000, requests=10**9, slots=1.0) == 10_000
