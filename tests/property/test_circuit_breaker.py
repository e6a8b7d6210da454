"""CircuitBreaker against its slow twin: passes, verdicts, ends and health checks in any order."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.models import circuit_breaker as twin
from vllm_router import _core_testing as testing

VERDICTS = ["neutral", "success", "failure", "failure"]


def newest(data, found):
    """One of the last two, as only those of the same state count; the others' turn comes after them."""
    return -data.draw(st.integers(1, min(2, len(found))))


class CircuitBreaker(RuleBasedStateMachine):
    @initialize(failures=st.integers(1, 4), successes=st.integers(1, 3), window=st.sampled_from([5.0, 100.0]))
    def begin(self, failures, successes, window):
        options = {"failure_threshold": failures, "success_threshold": successes}
        self.breaker = testing.CircuitBreaker(open_secs=60.0, window_secs=window, **options)
        self.slow = twin.CircuitBreaker(twin.Options(open_secs=60.0, window_secs=window, **options))
        self.now = 1000.0
        self.passes = []  # ours and the twin's
        self.good = []  # those whose head was a success

    @rule(seconds=st.sampled_from([0.5, 3.0, 30.0, 61.0, 61.0]))
    def time_passes(self, seconds):
        self.now += seconds
        assert self.breaker.come_due(self.now) == self.slow.come_due(self.now)

    @rule()
    def ask(self):
        ours, slow = self.breaker.try_pass(), self.slow.try_pass()
        assert (ours is None) == (slow is None)
        if slow is not None:
            self.passes.append((ours, slow))

    @rule()
    def failures_in_a_row(self):
        """Which open it; one by one, random verdicts seldom do."""
        for _ in range(self.slow.options.failure_threshold):
            ours, slow = self.breaker.try_pass(), self.slow.try_pass()
            assert (ours is None) == (slow is None)
            if slow is not None:
                change = self.slow.settle(slow, "failure", self.now, True)
                assert ours.settle("failure", self.now, True) == change

    @rule()
    def panic(self):
        self.passes.append((self.breaker.pass_in_panic(), self.slow.pass_in_panic()))

    @precondition(lambda self: self.passes)
    @rule(data=st.data())
    def hold(self, data):
        ours, slow = self.passes[newest(data, self.passes)]
        ours.hold(self.now)
        self.slow.hold(slow, self.now)

    @precondition(lambda self: self.passes)
    @rule(data=st.data(), verdict=st.sampled_from(VERDICTS), may_open=st.booleans())
    def settle(self, data, verdict, may_open):
        ours, slow = self.passes.pop(newest(data, self.passes))
        assert ours.settle(verdict, self.now, may_open) == self.slow.settle(slow, verdict, self.now, may_open)
        if verdict == "success":
            self.good.append((ours, slow))

    @precondition(lambda self: self.good)
    @rule(data=st.data(), broke_off=st.booleans(), may_open=st.booleans())
    def end(self, data, broke_off, may_open):
        ours, slow = self.good.pop(newest(data, self.good))
        assert ours.settle_end(broke_off, self.now, may_open) == self.slow.settle_end(
            slow, broke_off, self.now, may_open
        )

    @precondition(lambda self: self.passes)
    @rule(data=st.data())
    def the_client_leaves(self, data):
        ours, slow = self.passes.pop(newest(data, self.passes))
        ours.drop()
        self.slow.give_up(slow)

    @rule()
    def out_of_reach(self):
        self.breaker.not_reached()
        self.slow.not_reached()

    @rule()
    def reached(self):
        assert self.breaker.reached() == self.slow.reached()

    @invariant()
    def they_agree(self):
        if hasattr(self, "slow"):
            assert self.breaker.state == self.slow.state
            assert self.breaker.opened_at == self.slow.opened
            assert self.breaker.held_closed == self.slow.held_closed()
            assert self.breaker.admits == (
                self.slow.state == "closed" or (self.slow.state == "half_open" and self.slow.prober is None)
            )


TestCircuitBreaker = CircuitBreaker.TestCase
