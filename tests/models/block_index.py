"""The slow twin of cpp/index/block_index.h: per owner a dict of blocks, and depths by walking the chain."""

from collections.abc import Iterable, Sequence

TIERS = 3


class BlockIndex:
    """A block is its chained hash, so it names everything before it."""

    def __init__(self) -> None:
        self.held: dict[int, dict[int, set[int]]] = {}  # owner -> block -> tiers

    def add_owner(self, owner: int) -> None:
        assert owner not in self.held
        self.held[owner] = {}

    def remove_owner(self, owner: int) -> None:
        self.held.pop(owner, None)

    def insert(self, owner: int, tier: int, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.held[owner].setdefault(block, set()).add(tier)

    def remove(self, owner: int, tier: int, blocks: Iterable[int]) -> None:
        for block in blocks:
            tiers = self.held[owner].get(block, set())
            tiers.discard(tier)
            if not tiers:
                self.held[owner].pop(block, None)

    def depth(self, owner: int, tier: int, chain: Sequence[int]) -> int:
        """Leading blocks that lie on `tier` or a faster one, without a gap."""
        depth = 0
        for block in chain:
            if not any(fast <= tier for fast in self.held[owner].get(block, ())):
                break
            depth += 1
        return depth

    def match(self, chain: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Owners that hold the first block: depths per tier."""
        depths = {
            owner: tuple(self.depth(owner, tier, chain) for tier in range(TIERS)) for owner in self.held
        }
        return {owner: depth for owner, depth in depths.items() if depth[-1] > 0}

    def is_held(self, block: int) -> bool:
        return any(block in blocks for blocks in self.held.values())

    def pairs(self) -> int:
        return sum(len(blocks) for blocks in self.held.values())

    def pairs_on(self) -> list[int]:
        tiers = [tiers for blocks in self.held.values() for tiers in blocks.values()]
        return [sum(tier in each for each in tiers) for tier in range(TIERS)]
