"""cpp/routing/rate_limit.h: so many per second, of one router and of several.

Its twins: tests/models/concurrency_limiter.py and rate_lease.py.
"""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models.rate_lease import Bucket, Leases, simulate
from tests.rows import for_each_row
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


def test_a_limit_that_comes_back_while_parts_are_fixed_holds_at_once():
    limit = testing.RateLimit(per_second=100)
    limit.settle(1)
    limit.lease(50, SECOND)
    limit.set_rate(0)
    limit.share_out(16, 0, 1.0)
    limit.set_rate(100)
    limit.share_out(2, 0, 1.0)
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

    @rule(routers=st.integers(1, 256), share=st.floats(-2, 2))
    def exchange(self, routers, share):
        asked = self.limit.settle(routers)
        assert asked == self.twin.settle(routers)
        got = (
            asked if asked < 0 else int(asked * share)
        )  # may be more than it asked for, or less than nothing
        self.leased += max(min(asked, 0), min(asked, got))
        for each in (self.limit, self.twin):
            each.lease(got, SECOND // 4)

    @rule(routers=st.integers(1, 256))
    def lose_a_reply(self, routers):
        assert self.limit.settle(routers) == self.twin.settle(routers)

    @rule(routers=st.integers(1, 300), phase=st.floats(0, 1))
    def share_out(self, routers, phase):
        for each in (self.limit, self.twin):
            each.share_out(routers, self.now, phase)
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
        name = f"{self.limits.index(limit):016x}"
        limit.lease(self.bucket.lease(self.now, self.rate, asked, name), SECOND // 4)

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
    assert limit.settle(1) == 50
    limit.lease(0, SECOND)
    for _ in range(75):
        limit.take(0)
    assert limit.settle(1) == 91  # 1.2 times what was wanted, and the one that was taken beyond
    limit.lease(91, SECOND)
    for _ in range(19):
        assert limit.settle(1) == 0
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
        assert limit.settle(50) == 2  # one at hand, and the one that was taken beyond
        limit.lease(0, SECOND // 4)
        assert limit.take(0) == SECOND // 4  # until a lease has paid for it
    assert limit.settle(50) == 2
    limit.lease(1, SECOND // 4)
    assert limit.take(0) == 0


def test_what_was_wanted_lately_is_asked_for_and_a_fifth_more():
    limit = testing.RateLimit(per_second=1000)
    limit.settle(100)
    limit.lease(0, 1)
    for _ in range(50):
        limit.take(0)
    assert limit.settle(100) == 61
    for _ in range(19):
        assert limit.settle(100) == 61  # the most of twenty
    assert limit.settle(100) == 6  # a hundredth of half a second's worth, and what was taken beyond


def test_without_leases_each_has_its_part_and_the_burst_is_spent():
    limit = testing.RateLimit(per_second=100)
    limit.settle(4)
    limit.lease(50, SECOND)
    limit.share_out(4, 0, 1.0)
    assert limit.take(0) > 0
    admitted = sum(limit.take(now) == 0 for now in range(0, 5 * SECOND, SECOND // 1000))
    assert 24 * 4 <= admitted <= 25 * 5


@pytest.mark.parametrize("got", [10**6, -(2**63), 2**63 - 1, -1])
def test_a_lease_is_at_most_what_was_asked_for_and_never_negative(got):
    """A Redis, or what has written to it, may reply anything."""
    limit = testing.RateLimit(per_second=100)
    assert limit.settle(5) == 10
    limit.lease(got, SECOND)
    limit.lease(got, SECOND)  # that nothing asked for
    assert sum(limit.take(0) == 0 for _ in range(1000)) == 1 + (10 if got > 0 else 0)


@pytest.mark.parametrize(("rate", "routers"), [(2, 16), (10, 4), (1, 256), (100, 3)])
def test_parts_of_a_slow_limit_do_not_add_up_to_more(rate, routers):
    """16 routers that had one per second each would admit eight times a limit of 2/s."""
    draw = random.Random(1)
    limits = [testing.RateLimit(rate) for _ in range(routers)]
    for limit in limits:
        limit.lease(0, SECOND)
        limit.share_out(routers, 0, draw.random())
    seconds = 512
    admitted = [0] * routers
    for now in range(0, seconds * SECOND, SECOND // 4):
        for at, limit in enumerate(limits):
            while limit.take(now) == 0:
                admitted[at] += 1
    assert sum(admitted) <= rate * seconds + routers
    assert sum(admitted) >= rate * seconds * 0.9 - routers
    assert max(admitted) - min(admitted) <= 1 + max(admitted) // 50


def shares(rate, loads, **more):
    """Of ten seconds, after three: the part of the limit that was used, and each router's part of that."""
    admitted = simulate(testing.RateLimit, rate, loads, seconds=10, warm=3, **more)
    whole = sum(admitted)
    return whole / (10 * rate), [one / whole for one in admitted]


@for_each_row("locked", [False, True], ids=["in any order", "in step"])
@for_each_row("over", [1.6, 10])
@for_each_row("routers", [1, 2, 4, 16])
def test_routers_with_equal_loads_get_equal_parts(routers, over, locked):
    for rate in (200, 1000, 10_000):
        used, parts = shares(rate, [rate * over / routers] * routers, locked=locked)
        assert 0.97 <= used <= 1.03
        assert all(abs(part * routers - 1) <= 0.1 for part in parts), (rate, parts)


@pytest.mark.parametrize("routers", [2, 4])
def test_turns_that_stay_in_step_favour_nobody(routers):
    used, parts = shares(1000, [800] * routers, locked=True, jitter=0)
    assert used >= 0.97
    assert all(abs(part * routers - 1) <= 0.15 for part in parts), parts


@pytest.mark.parametrize("routers", [2, 4, 16])
def test_of_a_slow_limit_each_router_gets_something(routers):
    for seed in range(3):
        used, parts = shares(2, [4] * routers, seed=seed)
        assert 0.85 <= used <= 1.15
        assert min(parts) > 0, parts


@pytest.mark.parametrize("others", [0, 1, 3, 15])
def test_one_router_alone_gets_all_of_it(others):
    for rate in (20, 1000):
        used, _ = shares(rate, [rate * 2] + [0] * others)
        assert used >= 0.95


def test_a_router_that_wants_little_gets_it_and_the_others_share_the_rest():
    used, (big, *small) = shares(1000, [2000, 50, 50, 50])
    assert used >= 0.97
    assert all(part * 1000 >= 45 for part in small)
    assert big * 1000 >= 800
    used, (one, other, small) = shares(1000, [3000, 900, 100])
    assert used >= 0.97
    assert small * 1000 >= 90
    assert abs(one / other - 1) <= 0.15


@pytest.mark.parametrize(("milliseconds", "within"), [(20, 0.05), (100, 0.1), (250, 0.25)])
def test_a_slow_redis_changes_neither_the_limit_nor_the_parts(milliseconds, within):
    used, parts = shares(1000, [800] * 4, reply_ns=milliseconds * 10**6)
    assert 0.95 <= used <= 1.05
    assert all(abs(part * 4 - 1) <= within for part in parts), parts


def test_turns_of_a_second_would_lower_the_limit():
    """The negative control: so leases do not wait for the frames' interval."""
    used, _ = shares(1000, [2000], turn_ns=SECOND)
    assert used <= 0.6
