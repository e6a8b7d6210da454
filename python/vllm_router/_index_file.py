"""What pickles of `BlockCacheTracker`, `StringTree` and `TokenTree` call (docs/reference/index_file.md)."""

from __future__ import annotations

from typing import TypeVar

from vllm_router._core import BlockCacheTracker, StringTree, TokenTree

Index = TypeVar("Index", BlockCacheTracker, StringTree, TokenTree)


def restored(kind: type[Index], image: bytes) -> Index:
    """The index is made again, with all checks."""
    return kind._from_image(image)
