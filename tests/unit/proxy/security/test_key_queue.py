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
