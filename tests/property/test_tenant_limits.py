"""Buckets and tables of tenants against their slow twins, and what limits promise, after any story."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import tenant_limits as twin
from vllm_router import _core_testing as testing

SECOND = 10**9
RATES = st.sampled_from([1, 7, 60, 1200, 600_000, 100_000_000_000])
BURSTS = st.sampled_from([1, SECOND // 7, SECOND, 10 * SECOND, 86_400 * SECOND])
AMOUNTS = st.integers(1, 30) | st.integers(1, 2_000_000) | st.just(10**12)
PAUSES = st.just(0) | st.integers(0, 3 * SECOND) | st.integers(0, 7200 * SECOND)
STEPS = st.one_of(
    st.tuples(st.just("take"), AMOUNTS),
    st.tuples(st.just("take"), AMOUNTS),
    st.tuples(st.just("settle"), AMOUNTS),
    st.tuples(st.just("pause"), PAUSES),
    st.tuples(st.just("set_pace"), RATES, BURSTS, st.sampled_from([1, 1, 2, 7])),
    st.tuples(st.just("charge"), AMOUNTS, PAUSES),
)


class Pair:
    """A bucket and its twin, which do the same."""

    def __init__(self, per_minute, burst):
        self.fast = testing.RateBucket(per_minute, burst)
        self.slow = twin.RateBucket(per_minute, burst)
        self.now = 0
        self.taken = []

    def take(self, amount):
        got = self.fast.take(amount, self.now)
        assert got == self.slow.take(amount, self.now)
        if got == 0:
            self.taken.append(amount)
        return got

    def settle(self, actual):
        if self.taken:
            taken = self.taken.pop()
            self.fast.settle(taken, actual, self.now)
            self.slow.settle(taken, actual, self.now)

    def pause(self, nanos):
        self.now += nanos

    def set_pace(self, per_minute, burst, parts):
        self.fast.set_pace(per_minute, burst, parts)
        self.slow.per_minute, self.slow.burst, self.slow.parts = per_minute, burst, parts

    def charge(self, amount, age):
        self.fast.charge(amount, self.now - age, self.now)
        self.slow.charge(amount, age, self.now)

    def check(self):
        assert self.fast.level(self.now) == self.slow.level(self.now)
        assert self.fast.used(self.now) == self.slow.used


@given(RATES, BURSTS, st.lists(STEPS, max_size=60))
def test_a_bucket_is_its_slow_twin(per_minute, burst, story):
    pair = Pair(per_minute, burst)
    for what, *arguments in story:
        getattr(pair, what)(*arguments)
        pair.check()


@given(RATES, BURSTS, st.lists(st.tuples(AMOUNTS, PAUSES), max_size=60))
def test_no_more_passes_than_the_burst_and_what_the_time_gives(per_minute, burst, story):
    bucket, slow = testing.RateBucket(per_minute, burst), twin.RateBucket(per_minute, burst)
    now = passed = 0
    for amount, pause in story:
        if bucket.take(amount, now) == 0:
            passed += amount
        assert passed <= slow.amount_in(slow.capacity + now)
        now += pause


@given(RATES, BURSTS, st.lists(AMOUNTS, min_size=1, max_size=20), AMOUNTS)
def test_the_wait_is_exact(per_minute, burst, before, amount):
    bucket = testing.RateBucket(per_minute, burst)
    for one in before:
        bucket.take(one, 0)
    wait = bucket.take(amount, 0)
    if wait is None:
        assert bucket.take(amount, 10**18) is None
    elif wait:
        assert bucket.take(amount, wait - 1) == 1
        assert bucket.take(amount, wait) == 0


@given(RATES, BURSTS, st.lists(st.tuples(AMOUNTS, AMOUNTS), max_size=30))
def test_what_is_settled_at_once_counts_as_if_it_had_been_known(per_minute, burst, story):
    """But for a debt of more than an hour, which is forgiven."""
    bucket, slow = testing.RateBucket(per_minute, burst), twin.RateBucket(per_minute, burst)
    used = 0
    for estimate, actual in story:
        if bucket.take(estimate, 0) == 0:
            bucket.settle(estimate, actual, 0)
            used = min(used + slow.nanos_of(actual), slow.capacity + twin.MOST_DEBT)
        assert bucket.used(0) == used


# ---- the table

TABLE_STEPS = st.one_of(
    st.tuples(st.just("find"), st.integers(0, 5), st.integers(0, 1)),
    st.tuples(st.just("find"), st.integers(0, 200), st.integers(0, 1)),
    st.tuples(st.just("take"), st.integers(0, 99), st.integers(1, 60)),
    st.tuples(st.just("release"), st.integers(0, 99)),
    st.tuples(st.just("release"), st.integers(0, 99)),
    st.tuples(st.just("pause"), st.integers(0, 90)),
)


class Tables:
    """A table and its twin; entries are known by the numbers of their meters."""

    def __init__(self, max_tenants):
        self.fast = testing.TenantTable(max_tenants)
        self.slow = twin.TenantTable(max_tenants)
        self.now = 0
        self.held = []
        self.numbers = {}  # of entries, which stay where they are

    def find(self, tenant, thread):
        hold = self.fast.find(f"t{tenant}", self.now, thread)
        entry = self.slow.find(f"t{tenant}", self.now)
        assert hold.is_shared == (entry is None)
        if entry is not None:
            assert self.numbers.setdefault(id(entry), hold.number) == hold.number
        self.held.append((hold, entry))

    def take(self, place, amount):
        if self.held:
            hold, entry = self.held[place % len(self.held)]
            if entry is not None:
                assert hold.take_tokens(amount, self.now) == (entry.tokens.take(amount, self.now) == 0)

    def release(self, place):
        if self.held:
            hold, entry = self.held.pop(place % len(self.held))
            hold.release()
            if entry is not None:
                entry.holds -= 1

    def pause(self, seconds):
        self.now += seconds * SECOND

    def check(self):
        assert len(set(self.numbers.values())) == len(self.numbers)
        assert len(self.fast) == len(self.slow.entries) <= self.slow.max_tenants
        assert self.fast.shared_finds == self.slow.shared_finds
        for entry in self.slow.entries:
            entry.tokens.drain(self.now)
        rows = {entry.name: entry.tokens.used for entry in self.slow.entries if entry.tokens.used}
        assert {name: tokens for name, _, _, tokens in self.fast.read(self.now)} == rows


@given(st.sampled_from([1, 2, 5]), st.lists(TABLE_STEPS, max_size=60))
def test_a_table_is_its_slow_twin_and_forgets_no_debt(max_tenants, story):
    tables = Tables(max_tenants)
    for what, *arguments in story:
        getattr(tables, what)(*arguments)
        tables.check()


@pytest.mark.parametrize("max_tenants", [1, 40, 100, 1000])
def test_a_table_is_its_slow_twin_through_a_long_story(max_tenants):
    dice = random.Random(max_tenants)
    tables = Tables(max_tenants)
    for _ in range(4000):
        what = dice.choices(["find", "take", "release", "pause"], [40, 20, 38, 2])[0]
        if what == "find":
            tables.find(int(dice.expovariate(1 / max_tenants)), dice.randrange(2))
        elif what == "take":
            tables.take(dice.randrange(10**6), dice.randrange(1, 60))
        elif what == "release":
            tables.release(dice.randrange(10**6))
        else:
            tables.pause(dice.randrange(30))
    tables.check()
