"""cpp/bindings/block_cache_tracker.cc: the names that the tracker has elsewhere."""

import numpy as np
import pytest

from vllm_router import BlockCacheTracker, BlockMatch, WorkerNotFoundError

PROMPT = np.arange(64, dtype=np.uint32)


def test_the_tracker_answers_to_the_names_with_backend():
    """mending row 30: find_best_backend, evict_backend, remove_backend, max_blocks_per_backend."""
    tracker = BlockCacheTracker(block_size=16, max_blocks_per_backend=9)
    assert tracker.max_blocks_per_backend == tracker.max_blocks_per_worker == 9
    assert BlockCacheTracker(16, 8).max_blocks_per_backend == 8
    tracker.record_request(PROMPT, "http://w1:8000")
    tracker.record_request(PROMPT[:16], "http://w2:8000")
    best = tracker.find_best_backend(PROMPT)
    assert best == BlockMatch("http://w1:8000", 4, 4) == tracker.find_best_worker(PROMPT)
    assert tracker.find_best_backend(tokens=PROMPT, backends=["http://w2:8000"]) == ("http://w2:8000", 1, 4)
    assert tracker.evict_backend("http://w1:8000", 1) == 3
    assert tracker.evict_backend(backend="http://w1:8000", max_blocks=0) == 1
    tracker.remove_backend("http://w2:8000")
    assert tracker.find_best_backend(PROMPT) is None
    with pytest.raises(WorkerNotFoundError):
        tracker.remove_backend(backend="http://w2:8000")
