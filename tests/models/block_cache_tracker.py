"""The slow twin of cpp/index/block_cache_tracker.h: per worker the time of each block's last use.

A record may be open: then its blocks do not last before it is confirmed, and those that neither last nor
belong to another open record go when it is withdrawn.
"""

from collections.abc import Hashable, Sequence


class BlockCacheTracker:
    """Blocks are chained hashes; the oldest goes first, of equals the one furthest down its prompt."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.own_capacity: dict[str, int] = {}
        self.epoch = 0
        self.used: dict[str, dict[int, tuple[int, int]]] = {}  # worker -> block -> (epoch, -position)
        self.lasting: dict[str, set[int]] = {}
        self.open: dict[Hashable, tuple[str, set[int]]] = {}  # claim -> its blocks that did not last

    def record(self, worker: str, chain: Sequence[int], claim: Hashable = None) -> None:
        self.epoch += 1
        blocks = self.used.setdefault(worker, {})
        lasting = self.lasting.setdefault(worker, set())
        for position, block in enumerate(chain):
            blocks[block] = (self.epoch, -position)
        if claim is None:
            lasting.update(chain)
        else:
            self.open[claim] = (worker, set(chain) - lasting)
        self.evict(worker, self.capacity_of(worker))

    def confirm(self, claim: Hashable) -> None:
        worker, blocks = self.open.pop(claim)
        self.lasting.setdefault(worker, set()).update(blocks)

    def withdraw(self, claim: Hashable) -> None:
        worker, blocks = self.open.pop(claim)
        for other, kept in self.open.values():
            blocks = blocks if other != worker else blocks - kept
        for block in blocks - self.lasting.get(worker, set()):
            del self.used[worker][block]

    def capacity_of(self, worker: str) -> int:
        return self.own_capacity.get(worker, self.capacity)

    def evict(self, worker: str, max_blocks: int) -> int:
        blocks, evicted = self.used[worker], 0
        while len(blocks) > max_blocks:
            oldest = min(blocks, key=blocks.__getitem__)
            del blocks[oldest]
            self.lasting[worker].discard(oldest)
            for other, kept in self.open.values():
                if other == worker:
                    kept.discard(oldest)
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
        del self.lasting[worker]
        for other, kept in self.open.values():
            if other == worker:
                kept.clear()
        self.own_capacity.pop(worker, None)
