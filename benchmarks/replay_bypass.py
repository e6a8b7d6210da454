"""Which threshold the bypass of prefill wants, by the replay: python benchmarks/replay_bypass.py

A fleet of prefill and decode workers is replayed with several thresholds (--pd-bypass-uncached-tokens) at
one rate: 0.7 of what it can take without the bypass. The figures are divided by those without the bypass in
the same run: times to first token, times per further token, and bytes that decode workers fetched.

With --events the router hears KV events 50 ms late, and so knows the blocks of responses, too.

Conversation is measured when its trace is named by --trace or REPLAY_TRACE, as by benchmarks/replay_bars.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from benchmarks.replay_bars import AUTO, CONVERSATION, EVENTS, geometric_mean, mean
from benchmarks.replay_events import measured, options_of, parser_of
from vllm_router.replay import Fleet, Row, Trace, capacity, generate, parse_policies, read_trace, run

WORKLOADS = (CONVERSATION, "rag", "chat")
DECODE = (2, 4, 8)
THRESHOLDS = (0, 64, 256, 1024)
LOAD = 0.7
# 90 GB of an H200 beside the weights, at 262 kB a token.
CACHE_TOKENS = 340_000
# On an idle fleet rag's p90 is a hit, and 4 times as much no bound to plan with.
SLO_S = {"rag": 2.8}
RATIOS = ("ttft_p50_s", "ttft_p99_s", "token_p50_ms", "token_p99_ms", "transferred_bytes")


def traces(workload: str, path: str | None, seeds: int, size: float) -> Iterator[tuple[int, Trace]]:
    """The workload of each seed."""
    for seed in range(1, seeds + 1):
        assert workload != CONVERSATION or path is not None
        trace = read_trace(path, seed=seed) if path and workload == CONVERSATION else generate(workload, seed)
        yield seed, trace.head(max(1, int(len(trace) * size)))


def figures(
    trace: Trace, fleet: Fleet, seed: int, load: float, thresholds: Sequence[int], *, events: bool
) -> list[Row]:
    """A row for each threshold, at the rate that is this load without the bypass."""
    slo_s = SLO_S.get(trace.name)
    rate = load * capacity(trace, fleet, seed=seed, slo_s=slo_s, policies=parse_policies([AUTO])).rate
    more = f",{EVENTS}" if events else ""
    policies = [f"{AUTO}:pd_bypass_uncached_tokens={threshold}{more}" for threshold in thresholds]
    return run(trace, policies, fleet, rate=rate, seeds=[seed])


def ratio(rows: Sequence[Row], others: Sequence[Row], column: str) -> str:
    """Of the seeds' figures, each by that of the same seed."""
    found = [
        row[column] / other[column] for row, other in zip(rows, others, strict=True) if other[column] > 0
    ]
    return f"{geometric_mean(found):.2f}" if found and min(found) > 0 else "0"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = parser_of(__doc__, WORKLOADS)
    parser.add_argument("--decode", nargs="+", type=int, default=list(DECODE), help="decode workers")
    parser.add_argument("--thresholds", nargs="+", type=int, default=list(THRESHOLDS), help="0 is added")
    parser.add_argument("--load", type=float, default=LOAD, help=f"default: {LOAD}")
    parser.add_argument("--events", action="store_true", help="the router hears KV events")
    parser.add_argument("--link-gb-per-s", type=float, help="as of vllm-router replay")
    options = options_of(parser, argv)
    thresholds = sorted({0, *options.thresholds})
    link = {} if options.link_gb_per_s is None else {"link_gb_per_s": options.link_gb_per_s}
    print(
        "| workload | prefill + decode | requests/s | threshold | bypass | TTFT p50 | p99 | TPOT p50 | p99 "
        "| bytes |"
    )
    print("|---|---|" + "--:|" * 8)
    for workload in measured(options):
        named = list(traces(workload, options.trace, options.seeds, options.size))
        for decode in options.decode:
            for prefill in sorted({max(1, decode // 2), decode}):
                fleet = Fleet(prefill=prefill, decode=decode, cache_tokens=CACHE_TOKENS, **link)
                found = [
                    figures(trace, fleet, seed, options.load, thresholds, events=options.events)
                    for seed, trace in named
                ]
                without = [rows[0] for rows in found]
                for i, threshold in enumerate(thresholds):
                    rows = [of_seed[i] for of_seed in found]
                    share = f"{mean(row['bypass_share'] for row in rows):.0%}"
                    cells = [ratio(rows, without, column) for column in RATIOS]
                    rate = f"{mean(row['rate'] for row in rows):.3g}"
                    fleet_cell = f"{prefill} + {decode}"
                    print(
                        f"| {workload} | {fleet_cell} | {rate} | {threshold} | {share} |",
                        " | ".join(cells),
                        "|",
                        flush=True,
                    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
