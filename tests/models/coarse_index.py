"""The slow twin of cpp/index/coarse_index.h: a tracker of strides, and the range that it allows."""

from collections.abc import Hashable, Mapping, Sequence

from tests.models.block_cache_tracker import BlockCacheTracker


def strides_of(blocks: Sequence[int], stride: int) -> list[int]:
    return [block for place, block in enumerate(blocks, 1) if place % stride == 0]


class CoarseIndex:
    def __init__(self, stride: int, max_blocks: int) -> None:
        self.stride = stride
        self.tracker = BlockCacheTracker(max(1, max_blocks // stride))

    def add(self, worker: str) -> None:
        self.tracker.used[worker] = {}
        self.tracker.lasting[worker] = set()

    def set_capacity(self, worker: str, blocks: int) -> None:
        self.tracker.own_capacity[worker] = max(1, blocks // self.stride)
        self.tracker.evict(worker, self.tracker.capacity_of(worker))

    def record(self, worker: str, strides: Sequence[int], claim: Hashable = None) -> None:
        self.tracker.record(worker, strides, claim)

    def refine(self, blocks: Sequence[int], matches: Mapping[str, int]) -> dict[str, int]:
        known = self.tracker.match(strides_of(blocks, self.stride))
        refined = {}
        for worker in {*known, *matches}:
            least = known.get(worker, 0) * self.stride
            refined[worker] = min(max(matches.get(worker, 0), least), least + self.stride - 1)
        return refined
