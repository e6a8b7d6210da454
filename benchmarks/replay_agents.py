"""Which policy serves coding agents, by the replay: python benchmarks/replay_agents.py

The workload `agents` (docs/reference/replay.md) with pauses stretched to means of 1 to 600 s, and with caches
that together hold half a working set to four. Each table has a row per policy and a column per pair of these,
with means over the seeds: the share of prompt tokens that caches served, the mean and the p90 time to first
token, and the share of time that workers compute, which follows from the pauses.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vllm_router.replay import Fleet, Trace, generate, run

Cells = dict[tuple[float, float], list[dict[str, Any]]]

PAUSES_S = (1.0, 10.0, 60.0, 600.0)
CACHES = (0.5, 1.0, 2.0, 4.0)
POLICIES = ("all", "auto:events_delay_s=0.05")
SEEDS = 1

TABLES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("hit_share", "hits, %", lambda share: f"{100 * share:.1f}"),
    ("ttft_mean_s", "mean time to first token, s", lambda seconds: f"{seconds:.2f}"),
    ("ttft_p90_s", "p90 time to first token, s", lambda seconds: f"{seconds:.2f}"),
    ("busy", "workers busy, %", lambda share: f"{100 * share:.0f}"),
)


def with_pause(trace: Trace, mean_s: float) -> Trace:
    """The trace with this mean pause before a turn that waits for another."""
    assert trace.pause_s is not None
    assert trace.after_offsets is not None
    waits = np.diff(trace.after_offsets) > 0
    return trace.faster(float(trace.pause_s[waits].mean()) / mean_s)


def measure(options: argparse.Namespace) -> Cells:
    """The rows of run() by mean pause and size of caches."""
    cells: Cells = {}
    fleets = [Fleet(workers=options.workers, cache_share=share) for share in options.caches]
    for pause in options.pauses:

        def trace(seed: int, pause: float = pause) -> Trace:
            return with_pause(generate("agents", seed, options.size, options.agents), pause)

        rows = run(trace, options.policies, fleets, seeds=options.seeds, jobs=options.jobs)
        for number, share in enumerate(options.caches):
            cells[pause, share] = [row for row in rows if row["point"] == number]
        print(f"pauses of {pause:g} s: {len(rows)} runs", file=sys.stderr)
    return cells


def table(cells: Cells, column: str, show: Callable[[float], str]) -> str:
    """One figure by policy and cell."""
    policies = list(dict.fromkeys(row["policy"] for rows in cells.values() for row in rows))
    head = " | ".join(f"{pause:g} s, {share:g}" for pause, share in cells)
    lines = [f"| policy | {head} |", f"|---|{'--:|' * len(cells)}"]
    for policy in policies:
        values = [
            show(float(np.mean([row[column] for row in rows if row["policy"] == policy])))
            for rows in cells.values()
        ]
        lines.append(f"| `{policy}` | {' | '.join(values)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--policies", nargs="+", default=list(POLICIES), metavar="SPEC")
    add("--pauses", nargs="+", type=float, default=list(PAUSES_S), metavar="S", help="mean pauses in seconds")
    add(
        "--caches",
        nargs="+",
        type=float,
        default=list(CACHES),
        metavar="X",
        help="in working sets",
    )
    add("--agents", type=int, metavar="N", help="agents at work at once; default: 40")
    add("--size", type=int, metavar="N", help="sessions; default: 120")
    add("--workers", type=int, default=8)
    add("--seeds", type=int, default=SEEDS)
    add("--jobs", type=int, default=1, help="simulations at a time; default: 1")
    cells = measure(parser.parse_args(argv))
    for column, title, show in TABLES:
        print(f"\n{title}, by mean pause and size of caches\n\n{table(cells, column, show)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
