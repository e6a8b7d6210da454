"""The slow twin of cpp/events/removed_blocks.h: a list, the newest last."""

from typing import Any


class RemovedBlocks:
    def __init__(self, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self.blocks: list[tuple[int, Any]] = []

    def add(self, name: int, block: Any) -> None:
        self.blocks.append((name, block))
        self.blocks = self.blocks[max(0, len(self.blocks) - self.max_blocks) :]

    def find(self, name: int) -> Any:
        return next((block for each, block in reversed(self.blocks) if each == name), None)
