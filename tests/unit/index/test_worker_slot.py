"""cpp/index/worker_slot.h: owners are dense numbers."""

from vllm_router import _core_testing as testing


def test_owners_are_numbered_from_zero():
    index = testing.BlockIndex()
    assert [index.add_owner() for _ in range(5)] == [0, 1, 2, 3, 4]
