"""Blocks of prompts: their hashes, and how many of them each worker holds.

    chain = hash_blocks(token_ids, block_size=16)     # numpy.uint64, one per complete block

    tracker = BlockCacheTracker(block_size=16, max_blocks_per_worker=100_000)
    tracker.record_request(token_ids, "http://w1:8000")
    tracker.find_best_worker(token_ids)               # BlockMatch(worker, matched_blocks, total_blocks)
    tracker.save("tracker.index")                     # BlockCacheTracker.load("tracker.index") has it again

docs/explanation/block_index.md says why the hashes are chained and what the index makes of them.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_router._core import BlockCacheTracker, hash_blocks

__all__ = ["BlockCacheTracker", "BlockMatch", "hash_blocks"]


class BlockMatch(NamedTuple):
    """A worker, and how much of a prompt it holds."""

    worker: str
    """Its name."""
    matched_blocks: int
    """Leading blocks of the prompt that it holds, without a gap."""
    total_blocks: int
    """Complete blocks of the prompt."""
