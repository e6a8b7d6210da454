"""The slow truth about cpp/simulation/prefix_cache.h: prefixes instead of hashes, a list instead of links."""

Prefix = tuple[int, ...]


class PrefixCache:
    """Prefixes, most recently used first. A prefix is the tokens of all blocks up to its last one."""

    def __init__(self, capacity_blocks: int, block_tokens: int) -> None:
        self.capacity_blocks = capacity_blocks
        self.block_tokens = block_tokens
        self.prefixes: list[Prefix] = []
        self.evicted = 0

    def prefixes_of(self, tokens: list[int]) -> list[Prefix]:
        """Every prefix of `tokens` that ends with a full block, the shortest first."""
        full = len(tokens) // self.block_tokens
        return [tuple(tokens[: (block + 1) * self.block_tokens]) for block in range(full)]

    def match(self, tokens: list[int]) -> int:
        """How many leading blocks are resident."""
        prefixes = self.prefixes_of(tokens)
        return next((i for i, prefix in enumerate(prefixes) if prefix not in self.prefixes), len(prefixes))

    def use(self, tokens: list[int]) -> None:
        """Make them resident, the shortest prefix most recent."""
        used = self.prefixes_of(tokens)[: self.capacity_blocks]
        others = [prefix for prefix in self.prefixes if prefix not in used]
        kept = (used + others)[: self.capacity_blocks]
        self.evicted += len(used) + len(others) - len(kept)
        self.prefixes = kept
