"""ClassQueues against its slow twin, and what it promises, after any story of waiters."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import class_queues as twin
from vllm_router import _core_testing as testing

SETTINGS = st.builds(
    twin.Settings,
    sizes=st.tuples(*[st.sampled_from([0, 1, 2, 5])] * 3),
    ages_ms=st.tuples(st.just(0), st.sampled_from([0, 5]), st.sampled_from([0, 3])),
    weights=st.none() | st.just((8.0, 3.0, 1.0)),
)
STEPS = st.one_of(
    st.tuples(st.just("enqueue"), st.integers(0, 2), st.integers(0, 3), st.sampled_from([0, 1, 90, 700])),
    st.tuples(st.just("enqueue"), st.integers(0, 2), st.integers(0, 3), st.sampled_from([0, 1, 90, 700])),
    st.tuples(st.just("next"), st.lists(st.booleans(), min_size=3, max_size=3)),
    st.tuples(st.just("passed"), st.integers(0, 2)),
    st.tuples(st.just("requeue"), st.integers(0, 99)),
    st.tuples(st.just("evict"), st.integers(0, 99)),
    st.tuples(st.just("remove"), st.integers(0, 99)),
    st.tuples(st.just("settle"), st.integers(0, 99), st.sampled_from([0, 1, 2])),
)


class Pair:
    """The queues and their twin, which do the same."""

    def __init__(self, settings):
        self.settings = settings
        self.queues = testing.ClassQueues(settings.lines())
        self.slow = twin.ClassQueues(settings)
        self.count = self.now_ms = self.requeued = 0
        self.ends = {}

    def enqueue(self, of_class, tenant, cost):
        number, self.count = self.count, self.count + 1
        waiter = twin.Waiter(number, of_class, tenant, cost)
        got = self.queues.enqueue(number, twin.CLASSES[of_class], tenant, cost, self.now_ms)
        assert got == self.slow.enqueue(waiter, self.now_ms)
        queued, displaced = got
        if not queued:
            self.ends[number] = "full"
        if displaced is not None:
            self.ends[displaced] = "displaced"

    def next(self, room):
        got = self.queues.next(room, self.now_ms)
        assert got == self.slow.next(room, self.now_ms)
        return got

    def passed(self, of_class):
        self.queues.passed(twin.CLASSES[of_class])
        self.slow.passed(of_class)

    def requeue(self, place):
        for number in self._taken(place):
            self.queues.requeue(number)
            self.slow.requeue(number)
            self.requeued += 1

    def evict(self, place):
        for number in self._taken(place):
            waiter = self.slow.taken[number]
            self.slow.settle(number, 0)
            self.slow.enqueue_in_front(waiter, self.now_ms)
            self.queues.settle(number, 0)
            self.queues.enqueue_in_front(number, self.now_ms)
            self.requeued += 1

    def remove(self, place):
        number = place % max(self.count, 1)
        if number < self.count and number not in self.ends and number not in self.slow.taken:
            assert self.queues.remove(number) == self.slow.remove(number)
            self.ends[number] = "left"

    def settle(self, place, factor):
        for number in self._taken(place):
            actual = self.slow.taken[number].cost * factor
            self.queues.settle(number, actual)
            self.slow.settle(number, actual)
            self.ends[number] = "settled"

    def _taken(self, place):
        taken = sorted(self.slow.taken)
        return [taken[place % len(taken)]] if taken else []

    def check(self):
        assert self.queues.sizes == self.slow.sizes
        assert self.queues.mask == sum(1 << place for place, size in enumerate(self.slow.sizes) if size)
        for place, name in enumerate(twin.CLASSES):
            assert self.queues.queued_cost(name) == self.slow.queued_cost(place)
        # Each is in one place.
        waiting = {waiter.number for waiter in self.slow.waiting}
        assert sorted([*waiting, *self.slow.taken, *self.ends]) == list(range(self.count))
        assert sum(self.slow.sizes) <= sum(self.settings.sizes) + self.requeued


@given(SETTINGS, st.lists(STEPS, max_size=80))
def test_they_are_their_slow_twin_and_lose_no_waiter(settings, story):
    pair = Pair(settings)
    for what, *arguments in story:
        pair.now_ms += 1
        getattr(pair, what)(*arguments)
        pair.check()
    while pair.next([True, True, True]):
        pair.check()
    assert pair.queues.sizes == [0, 0, 0]


@given(st.lists(STEPS, max_size=80))
def test_in_strict_order_no_lower_class_goes_while_a_higher_one_can(story):
    pair = Pair(twin.Settings(sizes=(5, 5, 5), ages_ms=(0, 0, 0)))
    for what, *arguments in story:
        before = pair.slow.sizes
        got = getattr(pair, what)(*arguments)
        if what == "next" and got is not None:
            (room,) = arguments
            place = pair.slow.taken[got[0]].of_class
            assert not any(before[higher] and room[higher] for higher in range(place))


@given(st.lists(STEPS, max_size=80))
def test_a_waiter_is_displaced_by_a_higher_class_or_for_a_shorter_backlog(story):
    pair = Pair(twin.Settings(sizes=(2, 2, 2)))
    for what, *arguments in story:
        known = {waiter.number: waiter for waiter in pair.slow.waiting}
        ends = set(pair.ends)
        getattr(pair, what)(*arguments)
        for number in set(pair.ends) - ends:
            if pair.ends[number] != "displaced":
                continue
            of_class, tenant, _ = arguments
            displaced = known[number]
            assert displaced.of_class >= of_class
            if displaced.of_class == of_class:
                assert displaced.tenant != tenant


@pytest.mark.parametrize("seed", range(5))
def test_they_are_their_slow_twin_through_a_long_story(seed):
    dice = random.Random(seed)
    weights = (8.0, 3.0, 1.0) if seed % 2 else None
    pair = Pair(twin.Settings(sizes=(10, 20, 40), ages_ms=(0, 50, 200), weights=weights))
    for _ in range(3000):
        pair.now_ms += dice.randrange(4)
        names = ["enqueue", "next", "passed", "requeue", "evict", "remove", "settle"]
        what = dice.choices(names, [50, 30, 5, 3, 3, 3, 14])[0]
        if what == "enqueue":
            pair.enqueue(dice.randrange(3), dice.randrange(6), dice.choice([1, 90, 700]))
        elif what == "next":
            pair.next([dice.random() < 0.7 for _ in range(3)])
        elif what == "passed":
            pair.passed(dice.randrange(3))
        elif what == "settle":
            pair.settle(dice.randrange(100), dice.choice([0, 1, 2]))
        else:
            getattr(pair, what)(dice.randrange(3000))
        pair.check()
