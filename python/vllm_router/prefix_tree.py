"""Prefix trees: which workers have seen how much of a prompt, as text or as token ids.

    tree = StringTree(max_tree_size=64 << 20, eviction="lru")
    tree.insert("You are kind. Hello", "http://w1:8000")
    tree.match("You are kind. Bye")      # PrefixMatch(workers=('http://w1:8000',), matched=14, total=17, ...)

docs/explanation/prefix_tree.md draws them and says what they cost.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_router._core import StringTree, TokenTree

__all__ = ["PrefixMatch", "StringTree", "TokenTree"]


class PrefixMatch(NamedTuple):
    """How much of a prompt workers have seen."""

    workers: tuple[str, ...]
    """Those with the longest match; empty if no worker has any."""
    matched: int
    """The longest match: bytes of UTF-8, or tokens."""
    total: int
    """Length of the prompt, in the same unit."""
    depths: dict[str, int]
    """Match of each worker that has any, the longest first."""
