"""cpp/response_cache/generations.h against its model, and what routers see of each other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.generations import Generations, SharedHash
from vllm_router import _core_testing as testing

LIMITS = (
    testing.Generations.max_models,
    testing.Generations.max_tracked,
    testing.Generations.max_name_bytes,
    testing.Generations.max_count,
)


def counted():
    """Whose steps are 1."""
    return testing.Generations(largest_step=1)


def exchange(generations, shared, *, reply_is_lost=False):
    """As ResponseCacheService does it each second."""
    for field, by in generations.pending():
        count = shared.add(field, by)
        if not reply_is_lost:
            generations.written(field, by, count)
    if not reply_is_lost:
        for repair in generations.merge(list(shared.fields.items())):
            shared.repair(*repair)


def test_a_generation_is_that_of_all_and_that_of_the_model():
    generations = counted()
    assert (generations.of("a"), generations.of("")) == (0, 0)
    assert generations.bump("a") == 1
    assert generations.bump_all() == 1
    assert (generations.of("a"), generations.of("b"), generations.of("")) == (2, 1, 1)
    assert generations.counts() == [("*", 1), ("a", 1)]
    assert generations.pending() == [("*", 1), ("a", 1)]


def test_a_name_that_has_no_counter_invalidates_all():
    generations = counted()
    for name in ("", "*", "x" * (LIMITS[2] + 1)):
        before = generations.of("other")
        assert generations.bump(name) == before + 1
        assert generations.of("other") == before + 1
    assert generations.bump("x" * LIMITS[2]) == 4
    assert generations.of("other") == 3


def test_beyond_the_most_models_a_bump_is_of_all():
    generations = counted()
    for number in range(LIMITS[0]):
        generations.bump(f"m{number}")
    assert generations.of("other") == 0
    assert generations.bump("one more") == 1
    assert (generations.of("other"), generations.of("m7")) == (1, 2)
    assert generations.bump("m7") == 3  # which has a counter
    # Those that other routers have bumped are taken beyond it, up to a limit.
    generations.merge([(f"n{number}", 5) for number in range(LIMITS[1])])
    taken = [number for number in range(LIMITS[1]) if generations.of(f"n{number}") == 6]
    assert taken == list(range(LIMITS[1] - LIMITS[0]))


def test_an_increment_is_pending_until_redis_has_it():
    generations = counted()
    generations.bump_all()
    generations.bump_all()
    assert generations.pending() == [("*", 2)]
    generations.bump_all()  # after it was sent
    generations.written("*", 2, 7)
    assert generations.pending() == [("*", 1)]
    assert generations.of("") == 8
    assert generations.merge([("*", 7)]) == []
    assert generations.of("") == 8


def test_what_redis_lost_is_put_back():
    generations = counted()
    generations.merge([("*", 5), ("a", 3)])
    assert generations.merge([("*", 2), ("a", 3)]) == [("*", "add", 4)]
    assert generations.merge([]) == [("*", "set if missing", 5), ("a", "set if missing", 3)]
    assert generations.merge([("*", None), ("a", 2**62 + 1)]) == [("*", "set", 6), ("a", "set", 4)]
    assert generations.of("a") == 8


@pytest.mark.parametrize("count", [2**56 + 4, 2**61, 2**62, 2**63 - 1, 2**64 - 1])
def test_a_number_far_ahead_is_put_right(count):
    """Row 6: after one field of 2^62 no invalidation was heard of by any router."""
    generations = counted()
    generations.merge([("a", 3)])
    assert generations.merge([("a", count)]) == [("a", "set", 4)]
    assert generations.merge([("a", 4)]) == []
    assert generations.merge([("a", 4 + 2**56)]) == []


def test_steps_are_random_so_two_routers_do_not_meet():
    seeds = range(20)
    generations = [testing.Generations(seed) for seed in seeds]
    found = {one.bump_all() for one in generations}
    assert len(found) == len(seeds)
    assert min(found) > 0
    assert max(found) <= 1 << 24


def test_a_step_into_a_counter_that_was_lost_is_seen_by_all():
    """A router that never saw what a failover lost invalidates before the loss is seen."""
    shared = SharedHash()
    old, new = testing.Generations(1), testing.Generations(2)
    old.bump_all()
    exchange(old, shared)
    before = old.of("")
    shared.fields["*"] -= 1
    exchange(new, shared)
    new.bump_all()
    for _ in range(2):
        exchange(new, shared)
        exchange(old, shared)
    assert old.of("") == shared.fields["*"] > before


FIELDS = st.sampled_from(["*", "a", "b", "", "x" * 300])
STEPS = st.one_of(
    st.tuples(st.just("bump"), FIELDS),
    st.tuples(st.just("bump_all")),
    st.tuples(st.just("written"), FIELDS, st.integers(0, 3), st.integers(0, 9) | st.just(2**63)),
    st.tuples(
        st.just("merge"),
        st.dictionaries(FIELDS, st.none() | st.integers(0, 9) | st.just(2**62 + 1), max_size=4).map(
            lambda fields: list(fields.items())
        ),
    ),
)


@given(st.lists(STEPS, max_size=40))
def test_it_counts_as_its_twin(steps):
    generations, twin = counted(), Generations(*LIMITS)
    for name, *arguments in steps:
        assert getattr(generations, name)(*arguments) == getattr(twin, name)(*arguments), (name, arguments)
        assert generations.pending() == twin.pending()
        for model in ("a", "b", "c", "*", ""):
            assert generations.of(model) == twin.of(model)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(
                ["bump", "bump", "bump_all", "exchange", "exchange", "lost reply", "loss", "flush"]
            ),
            st.sampled_from(["a", "b"]),
        ),
        max_size=40,
    )
)
def test_an_invalidation_reaches_every_router_whatever_redis_loses(steps):
    """Afterwards no router has a generation that any had before it."""
    shared = SharedHash()
    routers = [testing.Generations(seed) for seed in range(3)]

    def exchange_all():
        for _ in range(3):
            for router in routers:
                exchange(router, shared)

    for number, what, model in steps:
        router = routers[number]
        before = [other.of(model) for other in routers]
        if what == "bump":
            router.bump(model)
        elif what == "bump_all":
            router.bump_all()
        elif what == "loss" and shared.fields:
            field = sorted(shared.fields)[number % len(shared.fields)]
            shared.fields[field] //= 2
        elif what == "flush":
            shared.fields.clear()
        elif what in ("exchange", "lost reply"):
            exchange(router, shared, reply_is_lost=what == "lost reply")
        after = [other.of(model) for other in routers]
        assert all(new >= old for new, old in zip(after, before, strict=True))
        if what.startswith("bump"):
            exchange_all()
            now = {other.of(model) for other in routers}
            assert len(now) == 1  # so they share responses again
            assert now.pop() > max(before)
