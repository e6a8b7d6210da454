"""cpp/index/hash_ring.h: the drawn cases. tests/property/test_hash_ring.py has the random ones."""

import pytest

from tests.models.hash_ring import HashRing as SlowRing
from vllm_router import _core_testing as testing

FURC, XXH3 = testing.HashFunction.furc, testing.HashFunction.xxh3
THREE = [(f"http://w{i}:8000", 160) for i in (1, 2, 3)]


def test_a_ring_without_points_owns_nothing():
    for nodes in ([], [("http://w1:8000", 0)]):
        ring = testing.HashRing(nodes, FURC)
        assert len(ring) == 0
        assert ring.find_point(5) is None
        assert ring.find_owner(5, {0}) is None


def test_one_point_owns_everything():
    ring = testing.HashRing([("http://w1:8000", 1)], FURC)
    [(point, owner)] = ring.points()
    assert (point, owner) == (testing.ring_hash(FURC, "http://w1:8000:0"), 0)
    assert {ring.find_owner(hash_, {0}) for hash_ in (0, point - 1, point, point + 1, 2**64 - 1)} == {0}


@pytest.mark.parametrize("function", [FURC, XXH3])
def test_a_key_on_a_point_belongs_to_it_and_one_past_it_to_the_next(function):
    #   p0      p1      p2 … p479
    #   |-------|-------|          key == p1 -> p1; p1 + 1 -> p2; after the last -> p0
    ring = testing.HashRing(THREE, function)
    points = [point for point, _ in ring.points()]
    for i, point in enumerate(points):
        assert ring.find_point(point) == i
        assert ring.find_point(point - 1) == i
        assert ring.find_point(min(point + 1, 2**64 - 1)) == (i + 1) % len(points)
    assert ring.find_point(0) == 0
    assert ring.find_point(2**64 - 1) == (0 if points[-1] < 2**64 - 1 else len(points) - 1)


@pytest.mark.parametrize(("workers", "lost"), [(16, 1), (256, 94)])
def test_points_lost_to_equal_hashes_are_as_many_as_documented(workers, lost):
    ring = testing.HashRing([(f"http://w{i + 1}:8000", 160) for i in range(workers)], FURC)
    # The documents do not name the workers that they counted with; the number belongs to the size.
    assert abs(workers * 160 - len(ring) - lost) <= 3 * lost**0.5 + 3


@pytest.mark.parametrize("workers", [1, 2, 3, 10, 70, 300])
def test_shares_follow_the_number_of_points(workers):
    ring = testing.HashRing([(f"w{i}", 160 if i else 320) for i in range(workers)], XXH3)
    keys = [testing.xxh3(f"key-{i}".encode()) for i in range(4000)]
    everyone = set(range(workers))
    counts = [0] * workers
    for key in keys:
        counts[ring.find_owner(key, everyone)] += 1
    # A share's spread on the ring is about 1 / sqrt(points of the owner).
    expected = len(keys) * 2 / (workers + 1)
    assert counts[0] == pytest.approx(expected, rel=0.3, abs=4 * expected**0.5)


def test_the_documented_vectors_are_points_of_the_ring():
    points = dict(testing.HashRing([("http://w1:8000", 160), ("http://127.0.0.1:8000@0", 1)], FURC).points())
    assert points[0x33F2D09E5831D9E2] == points[0x47F6163F2919E23C] == 0
    assert points[0xF94C3C22C5465489] == 1


@pytest.mark.parametrize("function", ["furc", "xxh3"])
def test_a_ring_of_many_points_is_in_order(function):
    nodes = [(f"http://w{i}:8000", 200) for i in range(60)]
    ring = testing.HashRing(nodes, testing.hash_function_by_name(function))
    assert ring.points() == SlowRing(nodes, function).points
