"""Whose key is validated next; tests/property/test_key_queue.py has random histories."""

import pytest

from vllm_router import _core_testing as testing


@pytest.fixture
def queue():
    return testing.KeyQueue(100, 10)


def keys_in_order(queue):
    return [begun[0] for begun in iter(queue.begin, None)]


def test_addresses_take_turns(queue):
    for number, (address, key) in enumerate([("a", "k1"), ("a", "k4"), ("a", "k5"), ("b", "k3")]):
        queue.enter(number, address, key, False)
    assert keys_in_order(queue) == ["k1", "k3", "k4", "k5"]


def test_refreshes_come_first(queue):
    queue.enter(1, "a", "unknown", False)
    queue.enter(2, "b", "good", True)
    queue.enter(3, "b", "better", True)
    assert keys_in_order(queue) == ["good", "better", "unknown"]


def test_a_key_that_two_addresses_wait_for_has_the_turns_of_both(queue):
    for number in range(5):
        queue.enter(number, "a", f"k{number}", False)
    assert queue.enter(9, "b", "k4", False) == "joined"
    assert keys_in_order(queue) == ["k0", "k4", "k1", "k2", "k3"]


def test_an_address_has_its_share_and_refreshes_do_not_count():
    queue = testing.KeyQueue(5, 2)
    entries = [queue.enter(number, "a", f"k{number}", False) for number in range(3)]
    assert entries == ["new", "new", "address_full"]
    assert queue.enter(4, "a", "good", True) == "new"
    assert queue.enter(5, "a", "good", False) == "joined"
    assert queue.enter(6, "b", "k0", False) == "joined"
    assert queue.enter(7, "b", "k1", False) == "full"
    assert (queue.waiting, queue.waiting_of("a"), queue.waiting_of("b")) == (5, 2, 1)


def test_a_key_that_no_request_waits_for_leaves_the_queue(queue):
    queue.enter(1, "a", "k1", False)
    queue.enter(2, "a", "k2", False)
    assert queue.leave(1) is None
    assert keys_in_order(queue) == ["k2"]


def test_a_running_validation_is_abandoned_with_its_last_request(queue):
    queue.enter(1, "a", "k", False)
    queue.enter(2, "b", "k", False)
    key, number = queue.begin()
    assert queue.leave(1) is None
    assert queue.leave(2) == number
    assert queue.enter(3, "a", key, False) == "new"
    assert queue.end(number) == []
    assert queue.waiting == 1


def test_its_end_tells_all_who_wait_in_the_order_in_which_they_came(queue):
    for number, address in enumerate("abca"):
        queue.enter(number, address, "k", False)
    _, number = queue.begin()
    queue.enter(4, "d", "k", False)
    assert queue.end(number) == [0, 1, 2, 3, 4]
    assert (queue.waiting, queue.queued) == (0, 0)
