"""cpp/policy/worker_history.h: what was sent fades, and a pace is learnt and unlearnt."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

W7, W8 = (7, 0), (8, 1)  # worker, slot


def test_of_a_worker_that_is_new_nothing_is_known():
    assert testing.WorkerHistory().read(*W7) == (0, 0, 0)


def test_what_was_sent_adds_up_and_fades():
    history = testing.WorkerHistory()
    history.add(*W7, 100)
    history.add(*W7, 50)
    history.add(*W8, 10)
    history.fade([W7, W8])
    assert history.read(*W7)[0] == pytest.approx(150 * 0.98)
    assert history.read(*W8)[0] == pytest.approx(10 * 0.98)


def test_a_slot_that_went_to_another_worker_begins_anew():
    history = testing.WorkerHistory()
    history.add(*W7, 100)
    history.learn_pace(*W7, 1.0)
    assert history.read(9, 0) == (0, 0, 0)
    history.add(9, 0, 5)
    assert history.read(9, 0) == (5, 0, 0)
    assert history.read(*W7) == (0, 0, 0)


def test_one_measurement_is_an_eighth_and_eight_are_most_of_it():
    history = testing.WorkerHistory()
    history.learn_pace(*W7, 0.8)
    assert history.read(*W7)[1] == pytest.approx(0.1)
    for _ in range(40):
        history.learn_pace(*W7, 0.8)
    assert history.read(*W7)[1] == pytest.approx(0.75, abs=0.02)
    for _ in range(80):
        history.learn_pace(*W7, 0.8)
    assert history.read(*W7)[1] == pytest.approx(0.8, rel=0.02)


def test_what_is_known_grows_with_the_pace_and_fades_with_it():
    history = testing.WorkerHistory()
    for more, known in [(1, 1 / 8), (7, 1 - (7 / 8) ** 8), (300, 1.0)]:
        for _ in range(more):
            history.learn_pace(*W7, 0.8)
        _, pace, now_known = history.read(*W7)
        assert now_known == pytest.approx(known, abs=0.01)
        # Their quotient is the mean, however few measurements there were.
        assert pace / now_known == pytest.approx(0.8, rel=1e-4)
    for _ in range(400):
        history.fade([W7])
    _, pace, known = history.read(*W7)
    assert known == pytest.approx(math.exp(-1), rel=0.01)
    assert pace / known == pytest.approx(0.8, rel=1e-4)


def test_one_measurement_says_no_more_than_a_factor_of_eight():
    history = testing.WorkerHistory()
    history.learn_pace(*W7, 1e9)
    assert history.read(*W7)[1] == pytest.approx(math.log(8) / 8)
    history.learn_pace(*W8, -1e9)
    assert history.read(*W8)[1] == pytest.approx(-math.log(8) / 8)


def test_a_pace_is_unlearnt_while_nothing_is_measured():
    history = testing.WorkerHistory()
    for _ in range(100):
        history.learn_pace(*W7, 2.0)
    for _ in range(2000):
        history.fade([W7])
    assert history.read(*W7)[1] < 0.02


@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.integers(0, 50))
def test_a_pace_is_never_out_of_bounds(measured, fades):
    history = testing.WorkerHistory()
    for value in measured:
        history.learn_pace(*W7, value)
    for _ in range(fades):
        history.fade([W7])
    assert abs(history.read(*W7)[1]) <= math.log(8) * (1 + 1e-6)


@given(st.floats(-1.5, 1.5), st.integers(0, 2**32 - 1))
def test_a_pace_is_found_whatever_it_was_before(true, seed):
    """Measurements that are off by up to half of a factor of e, and their mean."""
    history = testing.WorkerHistory()
    for _ in range(40):
        history.learn_pace(*W7, -true)
    state = seed
    for _ in range(400):
        state = (state * 1103515245 + 12345) % 2**31
        history.learn_pace(*W7, true + state / 2**31 - 0.5)
    assert history.read(*W7)[1] == pytest.approx(true, abs=0.25)
