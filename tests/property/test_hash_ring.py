"""HashRing against its slow twin: any names, sizes, keys and rejections."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.hash_ring import HashRing as SlowRing
from tests.models.hash_ring import bounded_owner
from vllm_router import HashRing
from vllm_router import _core_testing as testing

# Few names, so that some members share them and their points meet.
NODES = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 40)), max_size=8)
FUNCTIONS = st.sampled_from(["furc", "xxh3"])
HASHES = st.integers(0, 2**64 - 1)


def pair(nodes, function):
    return testing.HashRing(nodes, testing.hash_function_by_name(function)), SlowRing(nodes, function)


@given(NODES, FUNCTIONS, st.data())
def test_points_and_lookups_agree_with_the_slow_twin(nodes, function, data):
    ring, slow = pair(nodes, function)
    assert ring.points() == slow.points
    on_points = (
        [st.sampled_from([p for p, _ in slow.points]).map(lambda p: p + 1 & (2**64 - 1))]
        if slow.points
        else []
    )
    on_points += [st.sampled_from([p for p, _ in slow.points])] if slow.points else []
    for hash_ in data.draw(st.lists(st.one_of(HASHES, *on_points), min_size=1, max_size=20)):
        assert ring.find_point(hash_) == slow.find_point(hash_)
        accepted = data.draw(st.sets(st.integers(0, max(len(nodes) - 1, 0))))
        assert ring.find_owner(hash_, accepted) == slow.find_owner(hash_, accepted)


@given(
    st.sets(st.integers(0, 30), min_size=2, max_size=8), FUNCTIONS, st.lists(HASHES, min_size=20, max_size=60)
)
def test_a_node_that_leaves_moves_only_its_own_keys(numbers, function, hashes):
    names = [f"http://w{number}:8000" for number in sorted(numbers)]
    ring, slow = pair([(name, 20) for name in names], function)
    smaller, smaller_slow = pair([(name, 20) for name in names[:-1]], function)
    gone = len(names) - 1
    everyone = set(range(len(names)))
    for hash_ in hashes:
        before, after = ring.find_owner(hash_, everyone), smaller.find_owner(hash_, everyone)
        # A replaced point that comes back may draw a key; with so few points it hardly ever exists.
        if slow.replaced == smaller_slow.replaced == 0:
            assert before in (gone, after)
            assert ring.find_owner(hash_, everyone - {gone}) == after


@given(st.lists(NODES, min_size=1, max_size=6), FUNCTIONS)
def test_a_ring_that_changed_is_the_ring_built_anew(histories, function):
    # Names leave, return in another place, change their number of points; replaced points come back.
    ring, _ = pair([], function)
    for nodes in histories:
        ring = ring.changed(nodes)
        assert ring.points() == SlowRing(nodes, function).points


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(10, 4000), min_size=1),
    FUNCTIONS,
    st.integers(0, 10_000),
    st.data(),
)
def test_bounded_lookups_agree_with_the_slow_twin_and_keep_the_bound(weights, function, epsilon, data):
    names = sorted(weights)
    ring = HashRing({name: weights[name] / 1000 for name in names}, virtual_nodes=9, hash_function=function)
    nodes = [(name, max(1, (9 * weights[name] + 500) // 1000)) for name in names]
    loads = data.draw(st.lists(st.integers(0, 50), min_size=len(names), max_size=len(names)))
    excluded = data.draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))
    eligible = [i for i, name in enumerate(names) if name not in excluded]
    for key in data.draw(st.lists(st.one_of(HASHES, st.text(max_size=5)), min_size=1, max_size=10)):
        expected = bounded_owner(
            nodes, function, key, loads, [weights[name] / 1000 for name in names], epsilon, eligible
        )
        assert expected is not None
        assert ring.lookup_bounded(key, loads, epsilon / 1000, exclude=excluded) == names[expected]
        loads[expected] += 1


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef"), st.integers(10, 3000)), max_size=20),
    FUNCTIONS,
)
def test_any_history_of_workers_ends_in_the_ring_of_those_who_are_there(history, function):
    ring = HashRing(virtual_nodes=7, hash_function=function)
    there = {}
    for adds, name, weight in history:
        if adds and name not in there:
            ring.add(name, weight / 1000)
            there[name] = weight
        elif not adds and name in there:
            ring.remove(name)
            del there[name]
    slow = SlowRing([(name, max(1, (7 * weight + 500) // 1000)) for name, weight in there.items()], function)
    assert (ring.workers, ring.points) == (list(there), len(slow))
    if there:
        places = [place + step & (2**64 - 1) for place, _ in slow.points for step in (0, 1)]
        assert [ring.lookup(place) for place in places] == [
            list(there)[slow.find_owner(place, range(len(there)))] for place in places
        ]
