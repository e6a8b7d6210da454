"""ScaleSignals against its slow twin, which keeps everything that it was told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import scale_signals as twin
from vllm_router import _core_testing as testing

COUNTS = st.sampled_from([0, 0, 1, 2, 3, 5, 40])
OPTIONS = st.builds(
    twin.Options,
    target=st.sampled_from([0.1, 0.5, 0.8, 1.0]),
    target_wait_secs=st.sampled_from([0.5, 1.0, 10.0]),
    min=st.sampled_from([0, 0, 1, 4]),
    max=st.sampled_from([0, 0, 4, 9]),
)
INPUTS = st.builds(
    twin.Input,
    ready=COUNTS,
    pending=COUNTS,
    down=COUNTS,
    unknown=st.sampled_from([0, 0, 0, 2]),
    waiting=st.sampled_from([0, 0, 0, 1]),
    requests=st.sampled_from([0, 0, 1, 8, 9, 1000]),
    queued=st.sampled_from([0, 0, 3]),
    slots=st.sampled_from([None, None, 0.0, 10.0, 40.0]),
    prefill_seconds=st.sampled_from([None, None, 0.0, 0.3, 2.0]),
    kv_use=st.sampled_from([None, None, 0.0, 0.25, 0.8, 1.0]),
    polls_kv=st.booleans(),
    hears_routers=st.sampled_from([True, True, True, False]),
    demand=st.sampled_from([0, 0, 1, 2, 9]),
)
STEPS = st.tuples(
    st.integers(1, 40), st.sampled_from([0.25, 1, 1, 1, 5, 29, 30, 31, 60, 61, 299, 300, 301]), INPUTS
)


def told(seen):
    made = testing.ScaleInput()
    for name, value in vars(seen).items():
        setattr(made, name, value)
    return made


@given(st.lists(st.tuples(OPTIONS, STEPS), max_size=12))
def test_every_reading_is_its_twin_s(story):
    signals, slow = testing.ScaleSignals(), twin.ScaleSignals()
    now = 1000.0
    for options, (times, pause, seen) in story:
        for _ in range(times):
            now += pause
            fast = signals.update(told(seen), testing.ScaleOptions(**vars(options)), now)
            saturation, desired, stale = slow.update(seen, options, now)
            assert fast[0] == pytest.approx(saturation, rel=1e-9, abs=1e-12)
            assert fast[1:] == (desired, stale)


@given(OPTIONS, st.lists(st.tuples(st.integers(1, 400), INPUTS), max_size=8))
def test_it_keeps_its_bounds_and_what_it_rose_to_for_five_minutes(options, story):
    signals, desired = testing.ScaleSignals(), []
    bounds = testing.ScaleOptions(**vars(options))
    for times, seen in story:
        for _ in range(times):
            desired.append(signals.update(told(seen), bounds, float(len(desired)))[1])
    assert all(replicas == options.within(replicas) for replicas in desired)
    for i in range(1, len(desired)):
        if desired[i] > desired[i - 1]:
            assert min(desired[i : i + 300]) == desired[i]


@given(st.integers(0, 40), st.integers(0, 5), st.integers(0, 5), st.booleans(), OPTIONS)
def test_without_load_it_never_rises(ready, pending, down, polls, options):
    signals, desired = testing.ScaleSignals(), []
    seen = twin.Input(
        ready=ready, pending=pending, down=down, slots=8.0, kv_use=0.0, prefill_seconds=0.0, polls_kv=polls
    )
    for now in range(400):
        desired.append(signals.update(told(seen), testing.ScaleOptions(**vars(options)), float(now))[1])
    assert desired == sorted(desired, reverse=True)
    assert desired[0] == options.within(ready + pending + down)
