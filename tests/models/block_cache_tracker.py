"""The slow twin of cpp/index/block_cache_tracker.h: per worker the time of each block's last use."""

from collections.abc import Sequence


class BlockCacheTracker:
    """Blocks are chained hashes; the oldest goes first, of equals the one furthest down its prompt."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.own_capacity: dict[str, int] = {}
        self.epoch = 0
        self.used: dict[str, dict[int, tuple[int, int]]] = {}  # worker -> block -> (epoch, -position)

    def record(self, worker: str, chain: Sequence[int]) -> None:
        self.epoch += 1
        blocks = self.used.setdefault(worker, {})
        for position, block in enumerate(chain):
            blocks[block] = (self.epoch, -position)
        self.evict(worker, self.capacity_of(worker))

    def capacity_of(self, worker: str) -> int:
        return self.own_capacity.get(worker, self.capacity)

    def evict(self, worker: str, max_blocks: int) -> int:
        blocks, evicted = self.used[worker], 0
        while len(blocks) > max_blocks:
            del blocks[min(blocks, key=blocks.__getitem__)]
            evicted += 1
        return evicted

    def match(self, chain: Sequence[int]) -> dict[str, int]:
        depths = {}
        for worker, blocks in self.used.items():
            depth = 0
            while depth < len(chain) and chain[depth] in blocks:
                depth += 1
            if depth:
                depths[worker] = depth
        return depths

    def remove(self, worker: str) -> None:
        del self.used[worker]
        self.own_capacity.pop(worker, None)
