"""Admission and RateLimit against their slow twins, in any order of coming, leaving and giving back."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.models import concurrency_limiter as models
from vllm_router import _core_testing as testing


class ConcurrencyLimiter(RuleBasedStateMachine):
    @initialize(permits=st.integers(1, 6), line=st.integers(0, 4))
    def start(self, permits, line):
        self.real = testing.ConcurrencyLimiter(permits, line)
        self.slow = models.ConcurrencyLimiter(permits, line)
        self.waiters = {}  # by number
        self.holders = []

    @rule(amount=st.integers(1, 7))
    def enter(self, amount):
        waiter = models.Waiter(amount)
        entry, number = self.real.enter(amount)
        assert entry == self.slow.enter(waiter)
        self.waiters[number] = waiter
        if entry == "held":
            self.holders.append(number)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data):
        number = data.draw(st.sampled_from(self.holders))
        self.holders.remove(number)
        self.real.release(self.waiters[number].amount)
        self.slow.release(self.waiters[number].amount)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def step_back(self, data):
        number = data.draw(st.sampled_from(self.holders))
        self.holders.remove(number)
        assert self.real.step_back(number) == self.slow.step_back(self.waiters[number])

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def leave(self, data):
        number = data.draw(st.sampled_from(sorted(self.waiters)))
        assert self.real.leave(number) == self.slow.leave(self.waiters[number])

    @rule()
    def nudge(self):
        self.real.nudge()
        self.slow.nudge()

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def wake(self, data):
        number = data.draw(st.sampled_from(sorted(self.waiters)))
        self.real.wake(number)
        self.slow.wake(self.waiters[number])

    @rule(permits=st.integers(1, 6), line=st.integers(0, 4))
    def set_limits(self, permits, line):
        self.real.set_limits(permits, line)
        self.slow.set_limits(permits, line)

    @rule(amount=st.integers(1, 7))
    def try_acquire(self, amount):
        free = not self.slow.line and self.slow.in_use + amount <= self.slow.permits
        assert self.real.try_acquire(amount) == free
        if free:  # somebody else's
            self.real.release(amount)

    @invariant()
    def the_same_are_granted_and_the_same_is_left(self):
        if not hasattr(self, "real"):
            return
        granted = self.real.take_granted()
        assert [id(self.waiters[number]) for number in granted] == [id(one) for one in self.slow.granted]
        self.holders += granted
        self.slow.granted.clear()
        assert (self.real.in_use, self.real.waiting) == (self.slow.in_use, len(self.slow.line))
        assert self.real.full == self.slow.full


TestAdmission = ConcurrencyLimiter.TestCase


@given(
    st.integers(1, 20) | st.sampled_from([700_000, 1_000_000]),
    st.lists(st.integers(0, 3 * 10**8) | st.sampled_from([0, 1, 10**9]), max_size=60),
    st.integers(0, 10**15),
)
def test_a_rate_limit_is_a_bucket_of_tokens(per_second, pauses, now):
    real, slow = testing.RateLimit(per_second), models.RateLimit(per_second)
    for pause in pauses:
        now += pause
        assert real.take(now) == slow.take(now)
