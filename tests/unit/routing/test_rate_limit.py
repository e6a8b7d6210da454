"""cpp/routing/rate_limit.h: so many per second, of one router and of several.

Its twins: tests/models/concurrency_limiter.py and rate_lease.py.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models.rate_lease import Bucket, Leases
from vllm_router import _core_testing as testing

SECOND = 10**9


def test_a_seconds_worth_at_once_and_then_one_by_one():
    limit = testing.RateLimit(per_second=4)
    now = 123 * SECOND
    assert [limit.take(now) for _ in range(5)] == [0, 0, 0, 0, SECOND // 4]
    assert limit.take(now + SECOND // 4 - 1) == 1
    assert limit.take(now + SECOND // 4) == 0
    assert limit.take(now + SECOND // 4) == SECOND // 4


def test_a_refused_request_costs_nothing():
    limit = testing.RateLimit(per_second=1)
    assert limit.take(0) == 0
    assert [limit.take(SECOND // 2) for _ in range(9)] == [SECOND // 2] * 9
    assert limit.take(SECOND) == 0


def test_a_long_pause_saves_up_no_more_than_a_second():
    limit = testing.RateLimit(per_second=2)
    assert [limit.take(0) for _ in range(2)] == [0, 0]
    assert [limit.take(3600 * SECOND) == 0 for _ in range(3)] == [True, True, False]


def test_another_rate_holds_for_what_comes_from_now_on():
    limit = testing.RateLimit(per_second=1)
    assert [limit.take(0), limit.take(0)] == [0, SECOND]
    limit.set_rate(4)
    assert [limit.take(SECOND // 2) == 0 for _ in range(3)] == [True, True, False]
    limit.set_rate(1)
    assert limit.take(SECOND) > 0
    assert limit.take(2 * SECOND) == 0


def test_a_rate_of_0_is_none():
    limit = testing.RateLimit(per_second=0)
    assert {limit.take(0) for _ in range(1000)} == {0}
    limit.set_rate(1)
    assert [limit.take(0), limit.take(0)] == [0, SECOND]
    limit.set_rate(0)
    assert limit.take(0) == 0


rates = st.sampled_from([1, 2, 3, 7, 10, 100, 12_345, 1_000_000])


class OneRouter(RuleBasedStateMachine):
    """A router takes, settles and leases as its twin does, whatever the bucket gives."""

    @initialize(rate=rates)
    def open(self, rate):
        self.rate = rate
        self.limit, self.twin = testing.RateLimit(rate), Leases(rate)
        self.now = 0
        self.asked = None
        self.leased = self.taken = 0

    @rule(count=st.integers(1, 30), step=st.integers(0, SECOND))
    def take(self, count, step):
        self.now += step
        for _ in range(count):
            wait = self.limit.take(self.now)
            assert wait == self.twin.take(self.now)
            self.taken += wait == 0 and self.twin.leases

    @rule(routers=st.integers(1, 256), share=st.floats(0, 1))
    def exchange(self, routers, share):
        asked = self.limit.settle(routers)
        assert asked == self.twin.settle(routers)
        got = asked if asked < 0 else int(asked * share)
        self.leased += got
        for each in (self.limit, self.twin):
            each.lease(got, SECOND // 4)

    @rule(routers=st.integers(1, 256))
    def lose_a_reply(self, routers):
        assert self.limit.settle(routers) == self.twin.settle(routers)

    @rule(routers=st.integers(1, 300))
    def share_out(self, routers):
        for each in (self.limit, self.twin):
            each.share_out(routers, self.now)
        self.leased = self.taken = 0

    @invariant()
    def no_more_is_taken_than_leased_and_one(self):
        if hasattr(self, "limit"):
            assert self.taken <= max(0, self.leased) + 1


OneRouter.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestOneRouter = OneRouter.TestCase


class Fleet(RuleBasedStateMachine):
    """Routers that share a bucket: never more than the rate, a second's worth, and one for each router."""

    @initialize(rate=rates, routers=st.integers(1, 6))
    def open(self, rate, routers):
        self.rate = rate
        self.bucket = Bucket()
        self.limits = [testing.RateLimit(rate) for _ in range(routers)]
        self.now = 10**15  # microseconds
        self.began = self.now
        self.admitted = 0
        self.one = 0
        for limit in self.limits:
            self.exchange_of(limit)

    def exchange_of(self, limit):
        asked = limit.settle(len(self.limits))
        limit.lease(self.bucket.lease(self.now, self.rate, asked), SECOND // 4)

    @rule(micros=st.integers(0, 700_000))
    def wait(self, micros):
        self.now += micros

    @rule(which=st.integers(0, 5), count=st.integers(1, 50))
    def ask(self, which, count):
        limit = self.limits[which % len(self.limits)]
        self.admitted += sum(limit.take(self.now * 1000) == 0 for _ in range(count))

    @rule(which=st.integers(0, 5))
    def exchange(self, which):
        self.exchange_of(self.limits[which % len(self.limits)])

    @rule()
    def exchange_all(self):
        for limit in self.limits:
            self.exchange_of(limit)

    @invariant()
    def the_limit_holds(self):
        if hasattr(self, "limits"):
            passed = (self.now - self.began) / 1e6
            # Of a slow limit the bucket keeps a token, which is more than half a second's worth.
            seconds_worth = max(self.rate, 2)
            assert self.admitted <= self.rate * passed + seconds_worth + len(self.limits)


Fleet.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestFleet = Fleet.TestCase


def test_tokens_that_were_given_back_are_not_spent():
    limit = testing.RateLimit(per_second=100)
    for _ in range(8):
        limit.settle(1)
    limit.lease(90, SECOND)
    assert limit.settle(1) == -40  # half a second's worth stays
    limit.lease(-40, SECOND)
    assert sum(limit.take(0) == 0 for _ in range(1000)) == 51
    assert limit.settle(1) == 101  # the one that was taken beyond, and a second's worth


def test_a_router_without_a_lease_admits_a_single_request():
    limit = testing.RateLimit(per_second=1)
    limit.settle(50)
    limit.lease(0, SECOND // 4)
    assert [limit.take(0), limit.take(0)] == [0, SECOND // 4]
    for _ in range(20):
        limit.lease(0, SECOND // 4)
        assert limit.take(0) == SECOND // 4  # until a lease has paid for it
    assert limit.settle(50) == 2  # one at hand, and the one that was taken beyond
    limit.lease(1, SECOND // 4)
    assert limit.take(0) == 0


def test_what_was_wanted_lately_is_asked_for_and_a_fifth_more():
    limit = testing.RateLimit(per_second=1000)
    limit.settle(100)
    limit.lease(0, 1)
    for _ in range(50):
        limit.take(0)
    assert limit.settle(100) == 61
    for _ in range(7):
        assert limit.settle(100) == 61  # the most of eight
    assert limit.settle(100) == 6  # a hundredth of half a second's worth, and what was taken beyond


def test_without_leases_each_has_its_part_and_the_burst_is_spent():
    limit = testing.RateLimit(per_second=100)
    limit.settle(4)
    limit.lease(50, SECOND)
    limit.share_out(4, 0)
    assert limit.take(0) > 0
    admitted = sum(limit.take(now) == 0 for now in range(0, 5 * SECOND, SECOND // 1000))
    assert 24 * 4 <= admitted <= 25 * 5
