"""Outlier detection against its slow twin: responses of a fleet in any order, and what they say of each."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models import outlier_detector as twin
from vllm_router import _core_testing as testing

WORKERS = 3
WORKER = st.integers(0, WORKERS - 1)


class Fleet(RuleBasedStateMachine):
    @initialize(window=st.sampled_from([8.0, 120.0]))
    def begin(self, window):
        self.now = 1000.0
        self.window = window
        self.ours = [testing.ResponseCounts(window) for _ in range(WORKERS)]
        self.slow = [twin.ResponseCounts(window) for _ in range(WORKERS)]

    @rule(eighths=st.sampled_from([0.1, 0.5, 1, 2, 7, 8, 20]))
    def time_passes(self, eighths):
        self.now += eighths * self.window / twin.BUCKETS

    @rule(
        worker=WORKER, what=st.sampled_from(["success", "error", "turn_into_error"]), times=st.integers(1, 5)
    )
    def responses(self, worker, what, times):
        for _ in range(times):
            getattr(self.ours[worker], what)(self.now)
            getattr(self.slow[worker], what)(self.now)

    @invariant()
    def they_agree(self):
        if not hasattr(self, "ours"):
            return
        counts = [one.within(self.now) for one in self.ours]
        assert counts == [one.within(self.now) for one in self.slow]
        for worker, own in enumerate(counts):
            others = [count for other, count in enumerate(counts) if other != worker]
            rest = (sum(errors for errors, _ in others), sum(responses for _, responses in others))
            assert testing.is_outlier(own, rest) == twin.is_outlier(own, rest)


TestFleet = Fleet.TestCase

SHARE = st.integers(0, 40).flatmap(lambda all_: st.tuples(st.integers(0, all_), st.just(all_)))


@given(SHARE, SHARE)
def test_an_outlier_does_more_than_twice_as_badly_as_the_others(own, others):
    assert testing.is_outlier(own, others) == twin.is_outlier(own, others)


STATES = st.lists(st.sampled_from(["closed", "open", "unhealthy", "draining"]), min_size=1, max_size=9)


@given(STATES)
def test_breakers_open_for_errors_on_half_of_the_fleet_at_most(states):
    registry = testing.Registry()
    for number, state in enumerate(states):
        url = f"http://worker-{number}"
        registry.add(url)
        if state == "open":
            registry.set_open(url, True)
        elif state == "unhealthy":
            registry.set_healthy(url, False)
        elif state == "draining":
            registry.set_draining(url, True)
    in_rotation = states.count("closed") + states.count("open")
    view = registry.view
    assert (view.in_rotation, view.ejected) == (in_rotation, states.count("open"))
    assert view.may_eject == twin.may_eject(in_rotation, states.count("open"))
