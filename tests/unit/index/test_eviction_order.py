"""cpp/index/eviction_order.h: ranks, of which the smallest goes first."""

import pytest

from vllm_router import _core_testing as testing

ORDERS = ["lru", "lfu", "fifo", "mru", "filo", "priority"]


def ranks(order):
    return testing.EvictionRanks(getattr(testing.EvictionOrder, order))


@pytest.mark.parametrize(
    ("order", "first"), [("lru", 1), ("lfu", 1), ("fifo", 1), ("mru", 3), ("filo", 3), ("priority", 1)]
)
def test_of_nodes_inserted_once_the_first_or_the_last_goes(order, first):
    of = {tick: ranks(order).ended(tick) for tick in (1, 2, 3)}
    assert min(of, key=of.get) == first


@pytest.mark.parametrize(
    ("order", "first"), [("lru", 2), ("lfu", 2), ("fifo", 1), ("mru", 1), ("filo", 2), ("priority", 2)]
)
def test_use_counts_where_the_order_looks_at_use(order, first):
    # 1 came first and was used again after 2.
    rank = ranks(order)
    of = {1: rank.touched(rank.ended(1), 3), 2: rank.ended(2)}
    assert min(of, key=of.get) == first


def test_hits_weigh_more_than_time():
    rank = ranks("lfu")
    twice = rank.touched(rank.ended(1), 2)
    assert twice > rank.ended(1000)


def test_hits_stop_at_their_end():
    rank = ranks("lfu")
    many = rank.ended(1)
    for _ in range(2, 25):
        many = rank.inherited(many, many)
        assert many < 2**64
    assert rank.touched(many, 30) > rank.ended(31)


def test_priority_weighs_more_than_time_and_only_rises():
    rank = ranks("priority")
    assert rank.ended(1000, -1) < rank.ended(1, 0) < rank.ended(1, 1)
    assert rank.touched(rank.ended(1, 5), 2, -5) == rank.ended(2, 5)
    assert rank.ended(1, -(10**6)) == rank.ended(1, -(2**19))
    assert rank.ended(1, 10**6) == rank.ended(1, 2**19 - 1)


@pytest.mark.parametrize("order", ORDERS)
def test_a_node_that_was_only_passed_has_the_rank_of_its_last_child_once_that_is_gone(order):
    rank = ranks(order)
    child = rank.ended(7)
    assert rank.inherited(rank.passed(7), child) == child


@pytest.mark.parametrize("order", ["fifo", "filo"])
def test_the_upper_part_of_a_split_is_as_old_as_the_lower(order):
    rank = ranks(order)
    assert rank.upper(rank.ended(4)) == rank.ended(4)
