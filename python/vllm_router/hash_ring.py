"""HashRing: which worker owns a key, such that a worker that comes or goes moves only its own keys.

    ring = HashRing(["http://w1:8000", "http://w2:8000"])
    ring.lookup("header:x-session-id:abc")

docs/explanation/hashing_and_rings.md draws it and says what it costs.
"""

from __future__ import annotations

from typing import Literal

from vllm_router._core import HashRing

__all__ = ["HashRing"]


def _restored(
    kind: type[HashRing],
    weights: dict[str, float],
    virtual_nodes: int,
    hash_function: Literal["furc", "xxh3"],
) -> HashRing:
    """What a pickle of a ring calls: the ring is made again, with all checks."""
    return kind(weights, virtual_nodes=virtual_nodes, hash_function=hash_function)
