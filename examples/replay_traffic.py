"""Which policy serves this traffic best? Ask before the first request is sent.

Two workloads are played to a simulated fleet of four workers, under four policies and two seeds, and the rows
are grouped as one would with pandas.DataFrame(rows).
"""

from collections import defaultdict
from functools import partial
from statistics import mean
from typing import Any

from vllm_router.replay import Fleet, generate, run

POLICIES = ["round_robin", "least_load", "consistent_hash", "vllm_cache_aware"]


def main() -> None:
    for workload, size in (("rag", 1200), ("chat", 1200)):
        rows = run(
            partial(generate, workload, size=size),
            POLICIES,
            Fleet(workers=4, cache_tokens=300_000),
            rate=4.0,
            seeds=2,
        )
        by_policy: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            by_policy[row["policy"]].append(row)
        ideal = mean(row["ideal_hit_share"] for row in rows)
        print(f"{workload}, of whose prompt tokens {ideal:.0%} could come from a cache:")
        for policy, runs in by_policy.items():
            hit = mean(row["hit_share"] for row in runs)
            wait = mean(row["ttft_p90_s"] for row in runs)
            print(f"  {policy:18} hit {hit:4.0%}   p90 time to first token {wait:6.2f} s")
        print()


if __name__ == "__main__":
    main()
