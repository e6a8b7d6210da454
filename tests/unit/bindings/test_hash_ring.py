"""vllm_router.HashRing: what a caller may do, what it answers, and what it refuses."""

import copy
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import HashRing, NoWorkersError, Router, WorkerExistsError, WorkerNotFoundError
from vllm_router import _core_testing as testing

THREE = ["http://w1:8000", "http://w2:8000", "http://w3:8000"]


def session(i):
    return f"header:x-session-id:sess-{i}"


def test_the_documented_sessions_have_the_documented_workers():
    # The owners that vllm-project/router finds for them.
    ring = HashRing(THREE)
    assert [ring.lookup(session(i))[7:9] for i in range(8)] == [
        "w1",
        "w1",
        "w1",
        "w2",
        "w1",
        "w3",
        "w3",
        "w1",
    ]
    without = [ring.lookup(session(i), exclude=["http://w1:8000"])[7:9] for i in range(8)]
    assert without == ["w2", "w3", "w2", "w2", "w2", "w3", "w3", "w3"]
    assert HashRing(THREE[1:]).lookup_batch([session(i) for i in range(8)]).tolist() == [
        0,
        1,
        0,
        0,
        0,
        1,
        1,
        1,
    ]


@pytest.mark.parametrize("function", ["furc", "xxh3"])
def test_it_agrees_with_the_policy_consistent_hash(function):
    ring = HashRing(THREE, hash_function=function)
    router = Router("consistent_hash", THREE, hash_function=function)
    for i in range(100):
        assert ring.lookup(session(i)) == router.select(headers={"X-Session-ID": f"sess-{i}"}).worker_url


def test_a_key_is_text_bytes_or_a_place():
    ring = HashRing(THREE)
    place = testing.ring_hash(testing.HashFunction.furc, "héllo".encode())
    assert ring.lookup("héllo") == ring.lookup("héllo".encode()) == ring.lookup(place)
    assert ring.lookup(0) in THREE
    assert ring.lookup(2**64 - 1) in THREE


def test_a_batch_is_the_single_lookups():
    ring = HashRing({"a": 1, "b": 2.5, "c": 0.01}, virtual_nodes=40, hash_function="xxh3")
    keys = [f"key-{i}" for i in range(500)]
    owners = ring.lookup_batch(keys)
    assert owners.dtype == np.int32
    assert [ring.workers[i] for i in owners] == [ring.lookup(key) for key in keys]
    places = np.array([testing.xxh3(key.encode()) for key in keys], dtype=np.uint64)
    assert (ring.lookup_batch(places) == owners).all()
    assert ring.lookup_batch([]).shape == (0,)


def test_workers_come_and_go():
    ring = HashRing()
    assert (len(ring), ring.workers, ring.points) == (0, [], 0)
    ring.add("a")
    ring.add("b", weight=2)
    ring.add("c", weight=0.001 * 10)
    assert ring.workers == ["a", "b", "c"]
    assert ring.weights == {"a": 1.0, "b": 2.0, "c": 0.01}
    assert ring.points == 160 + 320 + 2
    assert [name in ring for name in ("b", "d", 5)] == [True, False, False]
    keys = [f"{i}" for i in range(300)]
    before = [ring.lookup(key) for key in keys]
    ring.remove("b")
    assert ring.workers == ["a", "c"]
    assert all(ring.lookup(key) == owner for key, owner in zip(keys, before, strict=True) if owner != "b")
    ring.add("b", weight=2)
    assert [ring.lookup(key) for key in keys] == before
    assert repr(ring) == "<HashRing furc, 3 workers, 482 points>"
    assert (ring.virtual_nodes, ring.hash_function) == (160, "furc")


def test_a_load_at_its_cap_sends_the_key_on():
    # Loads 2 5 3: the cap of the owner is ceil(1.25 * 11 / 3) = 5, so the next takes it.
    ring = HashRing(THREE, virtual_nodes=150, hash_function="xxh3")
    place = 0x542E8D8551BB38DA  # order on the ring: w2, w1, w3
    assert ring.lookup(place) == THREE[1]
    for loads, chosen in (([3, 4, 3], 1), ([2, 5, 3], 0), ([5, 5, 0], 2)):
        for each in (loads, np.array(loads), dict(zip(THREE, loads, strict=True))):
            assert ring.lookup_bounded(place, each, 0.25) == THREE[chosen]
    assert ring.lookup_bounded(place, {THREE[1]: 1}) == THREE[0]
    # Of two that are left the loads of the third do not count: cap ceil(1.25 * 4 / 2) = 3.
    assert ring.lookup_bounded(place, [3, 900, 0], exclude=[THREE[1]]) == THREE[2]


@for_each_row(
    ("call", "error", "says"),
    [
        (lambda: HashRing(virtual_nodes=0), ValueError, "virtual_nodes is 0; .* between 1 and 65536"),
        (lambda: HashRing(virtual_nodes=2.5), TypeError, "virtual_nodes is of type float"),
        (lambda: HashRing(virtual_nodes=2**70), ValueError, "between 1 and 65536"),
        (lambda: HashRing(hash_function="md5"), ValueError, "hash_function is .md5.*furc, xxh3"),
        (lambda: HashRing("http://w1:8000"), TypeError, "must be a list of names"),
        (lambda: HashRing([1]), TypeError, "workers holds 1"),
        (lambda: HashRing([""]), ValueError, "name is empty"),
        (lambda: HashRing({"a": 0}), ValueError, r"weight is 0\.0; .* between 0\.01 and 100"),
        (lambda: HashRing({"a": "1"}), TypeError, "a weight is a number"),
        (lambda: HashRing(["a", "a"]), WorkerExistsError, "already"),
        (lambda: HashRing({f"w{i}": 100 for i in range(2)}, virtual_nodes=65536), ValueError, "8388608"),
        (lambda: HashRing(["http://w1"]).remove("http://w2"), WorkerNotFoundError, "did you mean http://w1"),
        (lambda: HashRing(["a"]).add("b", float("nan")), ValueError, "weight is nan"),
        (lambda: HashRing().lookup("k"), NoWorkersError, "0 workers; add one"),
        (lambda: HashRing(["a"]).lookup("k", exclude=["a"]), NoWorkersError, "all excluded"),
        (lambda: HashRing(["a"]).lookup("k", exclude="a"), TypeError, "collection of workers"),
        (lambda: HashRing(["a"]).lookup(None), TypeError, "must be str, bytes or int"),
        (lambda: HashRing(["a"]).lookup(-1), ValueError, "between 0 and"),
        (lambda: HashRing(["a"]).lookup(2**64), ValueError, "between 0 and"),
        (lambda: HashRing().lookup_batch(["k"]), NoWorkersError, "0 workers"),
        (lambda: HashRing(["a"]).lookup_batch("key"), TypeError, "a list of them"),
        (lambda: HashRing(["a"]).lookup_batch(["k", 5]), TypeError, r"keys\[1\] is of type int"),
        (lambda: HashRing(["a"]).lookup_batch(np.zeros(2)), TypeError, "has dtype float64"),
        (lambda: HashRing(["a"]).lookup_batch(np.zeros((2, 2), np.uint64)), ValueError, "2 dimensions"),
        (lambda: HashRing(["a"]).lookup_bounded("k", [1, 2]), ValueError, "2 values and the ring 1"),
        (lambda: HashRing(["a"]).lookup_bounded("k", [-1]), ValueError, "load of a is -1"),
        (lambda: HashRing(["a"]).lookup_bounded("k", [10**11]), ValueError, "between 0 and 10000000000"),
        (lambda: HashRing("ab").lookup_bounded("k", [10**10] * 2), TypeError, "list of names"),
        (lambda: HashRing(["a", "b"]).lookup_bounded("k", [10**10] * 2), ValueError, "add up to"),
        (lambda: HashRing(["a"]).lookup_bounded("k", [1.5]), TypeError, "load of a is of type float"),
        (lambda: HashRing(["a"]).lookup_bounded("k", {"b": 1}), ValueError, "not on the ring"),
        (lambda: HashRing(["a"]).lookup_bounded("k", "1"), TypeError, "dict of worker to load"),
        (lambda: HashRing(["a"]).lookup_bounded("k", [1], -0.1), ValueError, "epsilon is -0.1"),
        (lambda: HashRing(["a"]).lookup_bounded("k", [1], float("nan")), ValueError, "epsilon is nan"),
        (lambda: HashRing(["a"]).lookup_bounded("k", [1], 10.5), ValueError, "between 0 and 10"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_a_refused_change_leaves_the_ring_as_it_was():
    ring = HashRing(["a", "b"])
    for change in (lambda: ring.add("a"), lambda: ring.add("c", 1000), lambda: ring.remove("z")):
        with pytest.raises((ValueError, LookupError)):
            change()
    assert (ring.workers, ring.points) == (["a", "b"], 320)


def test_lookups_run_while_workers_come_and_go():
    ring = HashRing(["a", "b"], hash_function="xxh3")
    places = np.arange(0, 2**64, 2**50, dtype=np.uint64)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            ring.add("c")
            ring.remove("c")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with_c = set(HashRing(["a", "b", "c"], hash_function="xxh3").lookup_batch(places).tolist())
        two = HashRing(["a", "b"], hash_function="xxh3").lookup_batch(places)
        three = HashRing(["a", "b", "c"], hash_function="xxh3").lookup_batch(places)
        assert with_c == {0, 1, 2}
        for _ in range(50):
            seen = ring.lookup_batch(places)
            assert (seen == two).all() or (seen == three).all()
    finally:
        stop.set()
        thread.join()


@given(
    workers=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.sampled_from([0.5, 1.0, 2.0]), max_size=6
    ),
    key=st.text(max_size=5) | st.integers(0, 2**64 - 1),
    n=st.integers(0, 8),
    function=st.sampled_from(["furc", "xxh3"]),
    data=st.data(),
)
def test_lookup_n_is_lookup_with_the_first_ones_excluded(workers, key, n, function, data):
    """mending row 47: the first n owners clockwise, each once."""
    ring = HashRing(workers, virtual_nodes=3, hash_function=function)
    excluded = data.draw(st.lists(st.sampled_from(sorted(workers)), unique=True) if workers else st.just([]))
    found = ring.lookup_n(key, n, exclude=excluded)
    expected = []
    while len(expected) < min(n, len(workers) - len(excluded)):
        expected.append(ring.lookup(key, exclude=[*excluded, *expected]))
    assert found == expected


@given(
    workers=st.dictionaries(st.text(min_size=1, max_size=3), st.sampled_from([0.5, 1.0, 2.25]), max_size=5),
    nodes=st.integers(1, 40),
    function=st.sampled_from(["furc", "xxh3"]),
    protocol=st.integers(0, pickle.HIGHEST_PROTOCOL),
)
def test_a_ring_survives_pickle_and_copies(workers, nodes, function, protocol):
    """mending row 47: iteration, equality and pickle."""
    ring = HashRing(workers, virtual_nodes=nodes, hash_function=function)
    for other in (pickle.loads(pickle.dumps(ring, protocol)), copy.copy(ring), copy.deepcopy(ring)):
        assert other == ring
        assert other is not ring
        assert list(other) == list(ring) == list(workers) == other.workers
        assert other.weights == ring.weights
        if workers:
            places = np.arange(0, 2**64, 2**58, dtype=np.uint64)
            assert (other.lookup_batch(places) == ring.lookup_batch(places)).all()
        other.add("\x00new", 3)
        assert other != ring


def test_rings_that_place_keys_differently_are_not_equal():
    """mending row 47: workers, their order and weights, virtual nodes and the hash are compared."""
    ring = HashRing(["a", "b"])
    assert ring == HashRing({"a": 1, "b": 1})
    for other in (
        HashRing(["b", "a"]),
        HashRing({"a": 1, "b": 2}),
        HashRing(["a", "b"], virtual_nodes=161),
        HashRing(["a", "b"], hash_function="xxh3"),
        HashRing(["a"]),
        ["a", "b"],
        None,
    ):
        assert ring != other
    with pytest.raises(TypeError, match="unhashable"):
        hash(ring)


def test_how_many_workers_is_checked():
    ring = HashRing(["a", "b"])
    assert ring.lookup_n("k", np.int64(2)) == ring.lookup_n("k", 99)
    assert HashRing().lookup_n("k", 2) == []
    with pytest.raises(ValueError, match=r"n is -1; .* must be 0 or more"):
        ring.lookup_n("k", -1)
    with pytest.raises(TypeError, match="n is of type float"):
        ring.lookup_n("k", 1.5)
