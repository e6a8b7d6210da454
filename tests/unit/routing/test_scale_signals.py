"""cpp/routing/scale_signals.h. The twin is compared in tests/property/."""

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


def test_a_restarted_router_wants_what_is_there():
    signals = testing.ScaleSignals()
    assert at(signals, 0, ready=3, pending=2, down=1, slots=30.0) == 6


def test_nothing_is_desired_without_bound():
    signals = testing.ScaleSignals()
    assert at(signals, 0, ready=4000, requests=10**9, slots=1.0) == 10_000
