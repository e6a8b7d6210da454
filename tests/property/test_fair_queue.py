"""FairQueue against its slow twin, and what it promises, after any story of waiters."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import fair_queue as twin
from vllm_router import _core_testing as testing

TENANTS = st.integers(0, 1) | st.integers(0, 11)
COSTS = st.sampled_from([0, 1, 7, 100, 333, 1000])
WEIGHTS = [0.25, 1.0, 3.0]
SHARES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.03125, 0.25, 0.28125, 0.75, 1.0])), max_size=4
)
ROOM = st.sets(st.integers(0, 3), max_size=4).map(sorted)
STEPS = st.one_of(
    st.tuples(st.just("enqueue"), TENANTS, COSTS, SHARES, st.none() | st.integers(0, 3)),
    st.tuples(st.just("next"), ROOM),
    st.tuples(st.just("requeue"), st.integers(0, 99)),
    st.tuples(st.just("remove"), st.integers(0, 99)),
    st.tuples(st.just("settle"), st.integers(0, 99), st.sampled_from([0, 0.5, 1, 1, 1, 2])),
)


class Pair:
    """A queue and its twin, which do the same."""

    def __init__(self, max_waiters, quantum):
        self.queue = testing.FairQueue(max_waiters, quantum)
        self.slow = twin.FairQueue(max_waiters, quantum)
        self.waiting: list[int] = []
        self.charged = self.settled = 0
        self.count = 0

    def enqueue(self, tenant, cost, holders=(), worker=None):
        waiter = twin.Waiter(self.count, tenant, cost, WEIGHTS[tenant % 3], list(holders), worker)
        self.count += 1
        taken = self.queue.enqueue(waiter.number, tenant, cost, waiter.weight, list(holders), worker)
        assert taken == self.slow.enqueue(waiter)
        if taken:
            self.waiting.append(waiter.number)

    def next(self, workers):
        number = self.queue.next(workers)
        waiter = self.slow.next(workers)
        assert number == (waiter.number if waiter else None)
        if waiter:
            self.waiting.remove(number)
            self.charged += waiter.cost
        return waiter

    def requeue(self, place):
        if number := self._taken(place):
            self.charged -= self.slow.taken[number[0]].cost
            self.queue.requeue(number[0])
            self.slow.requeue(number[0])
            self.waiting.append(number[0])

    def remove(self, place):
        number = place % max(self.count, 1)
        if number < self.count:
            assert self.queue.remove(number) == self.slow.remove(number) == (number in self.waiting)
            self.waiting = [other for other in self.waiting if other != number]

    def settle(self, place, share):
        if number := self._taken(place):
            cost = self.slow.taken[number[0]].cost
            self.queue.settle(number[0], int(cost * share))
            self.slow.settle(number[0], int(cost * share))
            self.settled += cost

    def _taken(self, place):
        taken = sorted(self.slow.taken)
        return [taken[place % len(taken)]] if taken else []

    def check(self):
        assert len(self.queue) == len(self.slow) == len(self.waiting)
        assert self.queue.reserved == self.slow.reserved == self.charged - self.settled
        assert self.queue.virtual_time == self.slow.virtual_time
        assert self.queue.tenants == len(self.slow.tenants)
        for name in range(30):
            known = self.slow.tenants.get(name)
            assert self.queue.virtual_time_of(name) == (known.time if known else None)
            waiters = known.waiters if known else []
            assert self.queue.waiters_of(name) == len(waiters)
            assert self.queue.newest_of(name) == (waiters[-1].number if waiters else None)

    def times(self):
        return [tenant.time for tenant in self.slow.backlogged()]


@given(
    st.sampled_from([1, 3, 40]), st.sampled_from([0.0, 50.0, 1000.0, 4000.0]), st.lists(STEPS, max_size=80)
)
def test_it_is_its_slow_twin_and_loses_no_waiter_and_no_charge(max_waiters, quantum, story):
    pair = Pair(max_waiters, quantum)
    for what, *arguments in story:
        before = pair.queue.virtual_time
        getattr(pair, what)(*arguments)
        pair.check()
        assert pair.queue.virtual_time >= before
    while pair.slow.taken:
        pair.requeue(0)
    left = set(pair.waiting)
    while waiter := pair.next([0, 1, 2, 3]):
        left.remove(waiter.number)
    assert not left
    pair.check()


@given(
    st.sampled_from([0.0, 50.0, 1000.0, 4000.0]),
    st.lists(st.tuples(TENANTS, COSTS, SHARES), min_size=1, max_size=120),
    st.lists(ROOM, max_size=200),
)
def test_tenants_with_waiters_are_within_a_quantum_and_the_largest_cost(quantum, waiters, rooms):
    """All are there from the start; what is settled is what was charged."""
    pair = Pair(len(waiters), quantum)
    for tenant, cost, holders in waiters:
        pair.enqueue(tenant, cost, holders)
    largest = max(cost / WEIGHTS[tenant % 3] for tenant, cost, _ in waiters)
    for room in rooms:
        pair.next(room)
        times = pair.times()
        assert not times or max(times) - min(times) <= quantum + largest + 1e-6


@given(st.sampled_from([0.0, 50.0, 1000.0]), st.lists(STEPS.filter(lambda s: s[0] != "settle"), max_size=120))
def test_with_tenants_that_return_they_are_within_two_quanta(quantum, story):
    pair = Pair(40, quantum)
    for what, *arguments in story:
        if what == "enqueue":
            arguments[3] = None
        if what == "requeue":
            continue
        getattr(pair, what)(*arguments)
        times = pair.times()
        assert not times or max(times) - min(times) <= 2 * quantum + 4 * 1000 + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_it_is_its_slow_twin_through_a_long_story(seed):
    dice = random.Random(seed)
    pair = Pair(dice.choice([20, 60]), dice.choice([0.0, 300.0, 2000.0]))
    for _ in range(3000):
        what = dice.choices(["enqueue", "next", "requeue", "remove", "settle"], [45, 35, 3, 3, 14])[0]
        if what == "enqueue":
            holders = [
                (dice.randrange(4), dice.choice([0.25, 0.5, 0.53125, 1.0])) for _ in range(dice.randrange(3))
            ]
            pair.enqueue(int(dice.expovariate(0.15)) % 30, dice.choice([0, 90, 300, 1000]), holders)
        elif what == "next":
            pair.next(sorted(dice.sample(range(4), dice.randrange(1, 5))))
        elif what == "settle":
            pair.settle(dice.randrange(100), dice.choice([0, 0.5, 1, 2]))
        else:
            getattr(pair, what)(dice.randrange(3000))
        pair.check()
