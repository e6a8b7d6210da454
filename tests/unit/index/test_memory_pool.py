"""cpp/index/memory_pool.h."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

LARGEST = 256 * 1024


def test_sizes_are_four_per_doubling():
    sizes = sorted({testing.MemoryPool.round_up(n) for n in range(1, 1025)})
    assert sizes == [64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]


@for_each_row("bytes_", [0, 1, 63, 64, 65, 80, 81, 1000, 4097, LARGEST - 1, LARGEST, LARGEST + 1])
def test_a_size_holds_what_was_asked_and_is_its_own_size(bytes_):
    size = testing.MemoryPool.round_up(bytes_)
    assert size >= bytes_
    assert size <= max(64, bytes_ * 5 // 4 + 1)
    assert testing.MemoryPool.round_up(size) == size


def test_pieces_do_not_overlap_however_they_come_and_go(rng):
    pool = testing.MemoryPool()
    live = []
    for _ in range(3000):
        if live and rng.random() < 0.45:
            piece, size = live.pop(rng.randrange(len(live)))
            assert pool.is_whole(piece)
            pool.free(piece)
        else:
            size = rng.choice([1, 64, 65, 100, 500, 5000, 70_000])
            live.append((pool.allocate(size, zeroed=rng.random() < 0.2), size))
    assert all(pool.is_whole(piece) for piece, _ in live)
    assert pool.live_bytes == sum(testing.MemoryPool.round_up(size) for _, size in live)
    for piece, _ in live:
        pool.free(piece)
    assert pool.live_bytes == 0


@pytest.mark.parametrize(("bytes_", "to"), [(64, 64), (128, 64), (4096, 64), (80, 16), (LARGEST * 3, 16)])
def test_pieces_are_aligned(bytes_, to):
    pool = testing.MemoryPool()
    pieces = [pool.allocate(bytes_) for _ in range(20)]
    assert all(pool.is_aligned(piece, to) for piece in pieces)
    for piece in pieces:
        pool.free(piece)


def test_large_pieces_can_be_had_zeroed():
    pool = testing.MemoryPool()
    pool.free(pool.allocate(LARGEST * 4, zeroed=True))
    pool.free(pool.allocate(1000, zeroed=True))
    pool.free(pool.allocate(1000, zeroed=True))
    assert pool.live_bytes == 0
