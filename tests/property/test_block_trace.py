"""A trace of real chat traffic over 16 workers with small caches: every depth is the slow twin's.

tests/data has the first 200 requests of the conversation trace of Mooncake (FAST'25, Apache-2.0).
The whole one, from https://github.com/kvcache-ai/Mooncake (FAST25-release/traces), is replayed when named:

    ROUTER_TRACE=conversation_trace.jsonl python -m pytest tests/property/test_block_trace.py
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.models.block_cache_tracker import BlockCacheTracker as SlowTracker
from tests.models.block_index import BlockIndex as SlowIndex
from vllm_router import BlockCacheTracker, hash_blocks
from vllm_router import _core_testing as testing

SLICE = Path(__file__).parents[1] / "data" / "mooncake_conversation_200.jsonl"
TRACE = Path(os.environ.get("ROUTER_TRACE", SLICE))
WORKERS = 16
CAPACITY = 150  # blocks; the longest prompts do not fit


@pytest.mark.timeout(0 if "ROUTER_TRACE" in os.environ else 100)
def test_depths_of_a_trace_are_those_of_the_slow_twin_at_every_request():
    tracker, slow_tracker = BlockCacheTracker(1, CAPACITY), SlowTracker(CAPACITY)
    index, slow_index = testing.BlockIndex(), SlowIndex()
    refs: list[dict[int, int]] = [{} for _ in range(WORKERS)]
    names = [f"w{i}" for i in range(WORKERS)]
    for name in names:
        tracker.add_worker(name)
        slow_index.add_owner(index.add_owner())
    deepest = 0
    for number, line in enumerate(TRACE.read_text().splitlines()):
        # An id stands for 512 tokens: here for one block of one token.
        tokens = np.array(json.loads(line)["hash_ids"], dtype=np.uint32)
        blocks = hash_blocks(tokens, 1)
        chain = blocks.tolist()

        expected = slow_tracker.match(chain)
        assert tracker.match(tokens) == expected, f"request {number}"
        told = {worker: depth[0] for worker, depth in index.match(blocks).items()}
        assert told == {w: depth[0] for w, depth in slow_index.match(chain).items()}, f"request {number}"
        # Nobody has evicted anything that the engines, which are the twin's, have not.
        assert {names[worker]: depth for worker, depth in told.items()} == expected

        best = max(expected, key=expected.__getitem__, default=None)
        goes_on = best is not None and expected[best] > 1
        worker = names.index(best) if goes_on else number % WORKERS
        deepest = max(deepest, expected.get(names[worker], 0))

        # The engine works on it: what it stores and gives up are the events.
        before = set(slow_tracker.used.get(names[worker], ()))
        tracker.record_request(tokens, names[worker])
        slow_tracker.record(names[worker], chain)
        after = set(slow_tracker.used[names[worker]])
        hit = next((i for i, block in enumerate(chain) if block not in before), len(chain))
        parent = refs[worker][chain[hit - 1]] if hit else 0
        status, places = index.insert(worker, 0, parent, blocks[hit:])
        assert status == "inserted"
        refs[worker].update(zip(chain[hit:], places.tolist(), strict=True))
        slow_index.insert(worker, 0, chain[hit:])
        gone = sorted((before | set(chain)) - after, key=lambda block: refs[worker][block], reverse=True)
        index.remove(worker, 0, np.array([refs[worker].pop(block) for block in gone], dtype=np.uint64))
        slow_index.remove(worker, 0, gone)
    assert deepest > 3
    assert index.check() == ""
    assert index.stats()["pairs"] == tracker.stats()["pairs"] == slow_index.pairs()
