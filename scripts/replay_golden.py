"""What every policy does to the first requests of a conversation trace, in figures that a change shows in.

    PYTHONPATH=build/release/python python scripts/replay_golden.py > tests/data/replay_golden.json

Run it after a change that is meant to change decisions; the difference belongs into that change.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from vllm_router._core import replay

ROOT = Path(__file__).parents[1]
FLEET = {"workers": 4, "cache_blocks": 600}
POLICIES = (
    "random",
    "round_robin",
    "least_load",
    "power_of_two",
    "consistent_hash",
    "rendezvous_hash",
    "vllm_cache_aware",
    "prefix_aware",
    "prefix_hash",
    "auto",
    "kv_logit",
    "kv_overlap",
    *replay.comparison_policies,
)


def trace() -> dict[str, Any]:
    """The first 200 requests of the trace."""
    lines = (ROOT / "tests/data/mooncake_conversation_200.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        # The clock of the trace ticks every 3 s; within a tick requests come one after the other.
        "arrival_s": np.maximum.accumulate(
            [row["timestamp"] / 1000 + i % 10 * 0.3 for i, row in enumerate(rows)]
        ),
        "input_tokens": np.array([row["input_length"] for row in rows], np.uint32),
        "output_tokens": np.array([row["output_length"] for row in rows], np.uint32),
        "block_ids": np.array([block for row in rows for block in row["hash_ids"]], np.uint64),
        "block_offsets": np.cumsum([0, *(len(row["hash_ids"]) for row in rows)], dtype=np.int64),
        "session_ids": np.arange(len(rows), dtype=np.uint64) // 3,
        "block_size": 512,
    }


def figures(policy: str) -> dict[str, Any]:
    """Of one policy."""
    result = replay.simulate(trace(), {"policy": policy, "seed": 1}, FLEET)
    return {
        "requests": result["workers"]["requests"].tolist(),
        "hit_tokens": int(result["hit_tokens"].sum()),
        "predicted_tokens": int(result["predicted_tokens"].sum()),
        "ttft_us": int(np.rint(result["ttft_s"] * 1e6).sum()),
        "e2e_us": int(np.rint(result["e2e_s"] * 1e6).sum()),
        "steps": result["workers"]["steps"].tolist(),
    }


if __name__ == "__main__":
    print(json.dumps({policy: figures(policy) for policy in POLICIES}, indent=1))
