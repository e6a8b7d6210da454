"""Traces for the replay, as the columns that the core takes."""

from collections.abc import Sequence

import numpy as np

BLOCK = 16


def columns(requests: Sequence[tuple[float, int, int, Sequence[int]]], **members) -> dict:
    """A trace of (arrival, input tokens, output tokens, block ids)."""
    offsets = np.cumsum([0, *(len(request[3]) for request in requests)], dtype=np.int64)
    return {
        "arrival_s": np.array([request[0] for request in requests], dtype=np.float64),
        "input_tokens": np.array([request[1] for request in requests], dtype=np.uint32),
        "output_tokens": np.array([request[2] for request in requests], dtype=np.uint32),
        "block_ids": np.array([i for request in requests for i in request[3]], dtype=np.uint64),
        "block_offsets": offsets,
        "block_size": BLOCK,
        **members,
    }
