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


def test_points_are_hashes_of_name_colon_number():
    ring = testing.HashRing([("http://w1:8000", 160)], FURC)
    assert 0x33F2D09E5831D9E2 in dict(ring.points())  # http://w1:8000:0
    assert 0x47F6163F2919E23C in dict(ring.points())  # http://w1:8000:159


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


def test_of_equal_points_the_later_owner_stays():
    # Two members of one name have all points in common.
    ring = testing.HashRing([("same", 5), ("other", 5), ("same", 3)], FURC)
    slow = SlowRing([("same", 5), ("other", 5), ("same", 3)])
    assert ring.points() == slow.points
    assert len(ring) == 10
    assert slow.replaced == 3
    assert [owner for _, owner in ring.points()].count(2) == 3


@pytest.mark.parametrize(("workers", "lost"), [(16, 1), (256, 94)])
def test_points_lost_to_equal_hashes_are_as_many_as_documented(workers, lost):
    ring = testing.HashRing([(f"http://w{i + 1}:8000", 160) for i in range(workers)], FURC)
    # The documents do not name the workers that they counted with; the number belongs to the size.
    assert abs(workers * 160 - len(ring) - lost) <= 3 * lost**0.5 + 3


def test_a_rejected_owner_is_passed_over_clockwise():
    ring = testing.HashRing(THREE, FURC)
    slow = SlowRing(THREE)
    for i in range(200):
        key = testing.ring_hash(FURC, f"key-{i}")
        for accepted in ({0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, set()):
            assert ring.find_owner(key, accepted) == slow.find_owner(key, accepted)


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


def test_no_worker_one_worker_all_at_the_cap_and_no_slack():
    """Case 29 of the design's list; the bounded half is in tests/unit/bindings/test_hash_ring.py too."""
    assert testing.HashRing([], XXH3).find_owner(0, {0}) is None
    one = testing.HashRing([("only", 3)], XXH3)
    assert {one.find_owner(place, {0}) for place in range(0, 2**64, 2**60)} == {0}
    # Everybody at the cap: no owner is accepted, and the walk ends after one turn.
    ring = testing.HashRing(THREE, XXH3)
    assert ring.find_owner(5, set()) is None
    # With factor 1 and equal loads the caps still leave room for one more: ceil((3 k + 1) / 3) = k + 1.
    assert [testing.load_cap(3 * k, 3000, 1000, 1000) for k in (0, 1, 10)] == [1, 2, 11]


def test_equal_points_a_key_on_a_point_and_the_way_around():
    """Case 30: of equal points the later node's stays, and the other comes back when that node goes."""
    ring = testing.HashRing([("same", 4), ("same", 4)], FURC)
    assert {owner for _, owner in ring.points()} == {1}
    alone = ring.changed([("same", 4)])
    assert alone.points() == [(point, 0) for point, _ in ring.points()]
    last = ring.points()[-1][0]
    assert ring.find_point(last) == 3
    assert ring.find_point(last + 1) == 0


def test_a_replaced_point_comes_back_when_its_place_is_free():
    # furc has 8,388,607 places, so among 120 workers of 160 points some meet; the slow twin knows which.
    nodes = [(f"http://w{i}:8000", 160) for i in range(120)]
    slow = SlowRing(nodes)
    assert slow.replaced > 0
    ring = testing.HashRing(nodes, FURC)
    for end in (119, 80, 40, 1):
        ring = ring.changed(nodes[:end])
        assert ring.points() == SlowRing(nodes[:end]).points
    assert ring.changed(nodes).points() == slow.points


def test_the_documented_vectors_are_points_of_the_ring():
    points = dict(testing.HashRing([("http://w1:8000", 160), ("http://127.0.0.1:8000@0", 1)], FURC).points())
    assert points[0x33F2D09E5831D9E2] == points[0x47F6163F2919E23C] == 0
    assert points[0xF94C3C22C5465489] == 1


@pytest.mark.parametrize("function", ["furc", "xxh3"])
def test_a_ring_of_many_points_is_in_order(function):
    nodes = [(f"http://w{i}:8000", 200) for i in range(60)]
    ring = testing.HashRing(nodes, testing.hash_function_by_name(function))
    assert ring.points() == SlowRing(nodes, function).points
