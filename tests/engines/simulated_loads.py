"""The loads of real engines on simulated workers: python -m tests.engines.simulated_loads [ROUNDS [LOAD...]].

A step takes as long as one of vLLM with the larger model (benchmarks/policies.md), and no
time of a processor: policies differ by what they decide alone. Everything runs twice as fast.
"""

import sys

from tests.engines.loads import LOADS, Run, send, table
from tests.engines.processes import BLOCK, BLOCKS, SLOTS
from tests.engines.test_policies_under_load import POLICIES
from vllm_router import Router
from vllm_router.testing import SimulatedWorker

ENGINE = {
    "step_ms": 22,
    "prefill_us_per_token": 400,
    "attention_ns_per_token2": 0,
    "decode_us_per_sequence": 550,
    "context_ns_per_token": 0,
    "step_tokens": 2048,
    "max_running": SLOTS,
    "cache_blocks": BLOCKS,
    "block_tokens": BLOCK,
    "model": "*",
    "speed": 2,
}


def run_once(load: str, policy: str) -> Run:
    """With empty caches and a router that knows nothing."""
    options = {"block_size": BLOCK} if policy == "auto" else {}
    with SimulatedWorker(**ENGINE) as one, SimulatedWorker(**ENGINE) as other:
        router = Router(policy, [one.url, other.url], **options)
        with router.serve(decision_headers=True, log_level="error") as server:
            return send(server, load)


def main(rounds: int = 10, *loads: str) -> None:
    """Prints the table."""
    runs: dict[tuple[str, str], list[Run]] = {}
    order = list(POLICIES)
    for _ in range(rounds):
        order = order[1:] + order[:1]  # each is the first in turn
        for load in loads or LOADS:
            for policy in order:
                runs.setdefault((load, policy), []).append(run_once(load, policy))
    print("\n".join(table(runs, POLICIES)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
