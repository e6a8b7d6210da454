"""Blocks of prompts: their hashes, and who holds how many of them.

    chain = hash_blocks(token_ids, block_size=16)     # numpy.uint64, one per complete block

docs/explanation/block_index.md says why the hashes are chained and what the index makes of them.
"""

from __future__ import annotations

from vllm_router._core import hash_blocks

__all__ = ["hash_blocks"]
