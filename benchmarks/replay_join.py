"""What clients notice when a worker joins, by the replay: python benchmarks/replay_join.py

A ninth worker, whose cache is empty, joins eight at a load of 0.85 in the middle of a trace. The figures are
p99 times to first token of the requests that arrive in the 30 s after it, against those of the same requests
where no worker joins, and the newcomer's share of these requests. The worst seed decides.

Conversation is measured when its trace is named by --trace or REPLAY_TRACE, as by benchmarks/replay_bars.py.

Exit status: 0 when the bar holds for every workload that was measured, 1 when it does not, 2 for a mistake.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.replay_bars import AUTO, CONVERSATION, USUAL, USUAL_WORKERS, Bench
from benchmarks.replay_events import measured, options_of, parser_of, span
from vllm_router.replay import Event, Fleet, Trace, parse_policies
from vllm_router.replay._engine import simulate

WORKLOADS = (CONVERSATION, "rag", "chat")
LOAD = 0.85
WINDOW_S = 30.0
BAR = 2.0  # most p99 with the newcomer, by that without


class Figures(NamedTuple):
    """Of one workload and seed."""

    without_s: float
    with_s: float
    share: float


def window(trace: Trace, fleet: Fleet, seed: int, begin_s: float) -> tuple[float, float]:
    """The p99 of the requests that arrive in the window, and the share of them that the last worker got."""
    (spec,) = parse_policies([AUTO])
    routing = fleet.routing() | spec.as_core(trace.block_size, fleet.cache_blocks(trace), seed)
    result = simulate(trace.as_core(), routing, fleet.as_core(trace))
    arrival, ttft = np.asarray(result["arrival_s"]), np.asarray(result["ttft_s"])
    inside = (arrival >= begin_s) & (arrival < begin_s + WINDOW_S)
    waits = np.where(np.isnan(ttft), np.inf, ttft)[inside]
    share = np.mean(np.asarray(result["worker"])[inside] == USUAL_WORKERS)
    return float(np.percentile(waits, 99)), float(share)


def figures(bench: Bench, workload: str, seed: int) -> Figures:
    """Two runs of one trace."""
    trace = bench.trace(workload, seed).at_rate(LOAD * bench.capacity(workload, USUAL, seed).rate)
    usual = USUAL.fleet(workload)
    caches = usual.cache_blocks(trace) * trace.block_size
    steady = dataclasses.replace(usual, cache_tokens=caches)
    middle = float(trace.arrival_s[len(trace) // 2] - trace.arrival_s[0])
    joined = dataclasses.replace(
        steady, workers=USUAL_WORKERS + 1, events=(Event(middle, "join", USUAL_WORKERS),)
    )
    without_s, _ = window(trace, steady, seed, middle)
    with_s, share = window(trace, joined, seed, middle)
    return Figures(without_s, with_s, share)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    options = options_of(parser_of(__doc__, WORKLOADS), argv)
    bench = Bench(options.workloads, options.trace, options.size, 1)
    missed = []
    print("| workload | p99 without, s | with, s | with / without | share of the newcomer |")
    print("|---|--:|--:|--:|--:|")
    for workload in measured(options):
        found = [figures(bench, workload, seed) for seed in range(1, options.seeds + 1)]
        ratios = [one.with_s / one.without_s for one in found]
        columns = ([one.without_s for one in found], [one.with_s for one in found], ratios)
        cells = [*map(span, columns), span([one.share for one in found])]
        print(f"| {workload} |", " | ".join(cells), "|", flush=True)
        if max(ratios) > BAR:
            missed.append(f"{workload}: {max(ratios):.2f} is above {BAR:g}")
    print(*missed, sep="\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
