"""cpp/events/removed_blocks.h: the last ones, and no more."""

from vllm_router import _core_testing as testing


def test_none_is_kept_after_a_clear_or_without_room():
    removed = testing.RemovedBlocks(2)
    removed.add(7, (0, 0), [1])
    assert removed.bytes > 0
    removed.clear()
    assert (removed.find(7), len(removed), removed.bytes) == (None, 0, 0)
    removed.add(8, (0, 0), [1, 2, 3])
    assert removed.find(8) == ((0, 0), [1, 2, 3])
    none = testing.RemovedBlocks(0)
    none.add(7, (0, 0), [1])
    assert none.find(7) is None


def test_its_memory_is_bounded():
    removed = testing.RemovedBlocks(8192)
    for name in range(100_000):
        removed.add(name, (name, 1), [name + 1])
    assert len(removed) == 8192
    assert removed.bytes < 8192 * 100
