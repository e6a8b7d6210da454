"""What KV events are worth to `auto`, by the replay: python benchmarks/replay_events.py

Goodput is the highest rate at which the p90 time to first token stays within the bound of the usual fleet, as
a share of that fleet's capacity with one router (docs/reference/replay.md, "Terms"). With several routers
each request comes to any of them, and none tells the others what it sent. The last column is the p90 without
events / with events, while one cache after the other is wiped, at a load of 0.85.

Conversation is measured when its trace is named by --trace or REPLAY_TRACE, as by benchmarks/replay_bars.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

from benchmarks.replay_bars import AUTO, CONVERSATION, EVENTS, USUAL_WORKERS, WORKLOADS, Bench, Setting

ONE = Setting("1 router")
FOUR = Setting("4 routers", routers=4)
WIPED = Setting("a cache wiped every 60 s", wipe_every_s=60)
BY_EVENTS = f"{AUTO}:{EVENTS}"
LATE = f"{AUTO}:events_delay_s=5"
COLUMNS = (
    ("1 router", ONE, AUTO),
    ("1, events", ONE, BY_EVENTS),
    ("1, events 5 s late", ONE, LATE),
    ("4 routers", FOUR, AUTO),
    ("4, events", FOUR, BY_EVENTS),
    ("4, events 5 s late", FOUR, LATE),
)


def cells(bench: Bench, workload: str, seed: int) -> list[float]:
    """The figures of one row."""
    capacity = bench.capacity(workload, Setting(workers=USUAL_WORKERS), seed).rate
    shares = [bench.goodput(workload, setting, policy, seed) / capacity for _, setting, policy in COLUMNS]
    return [*shares, bench.over("ttft_p90_s", AUTO, BY_EVENTS, workload, WIPED, 0.85, seed)]


def span(values: Sequence[float]) -> str:
    """The seeds' figures, as lowest to highest."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def parser_of(doc: str | None, workloads: Sequence[str]) -> argparse.ArgumentParser:
    """The options of a table by workload and seed."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    add = parser.add_argument
    add("--workloads", nargs="+", choices=workloads, default=list(workloads))
    add("--trace", default=os.environ.get("REPLAY_TRACE") or None, help="Mooncake's conversation trace")
    add("--seeds", type=int, default=3, help="seeds 1 to N; default: 3")
    add("--size", type=float, default=1.0, help="part of each trace; below 1 for trying out only")
    return parser


def options_of(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """What was given, checked."""
    options = parser.parse_args(argv)
    if options.seeds < 1 or not 0 < options.size <= 1:
        parser.error("--seeds must be 1 or more, --size above 0 and at most 1")
    return options


def measured(options: argparse.Namespace) -> Iterator[str]:
    """The workloads whose traces are there; of the other one it says that it is left out."""
    for workload in options.workloads:
        if workload == CONVERSATION and options.trace is None:
            print("conversation is not measured: name its trace with --trace", file=sys.stderr)
        else:
            yield workload


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    options = options_of(parser_of(__doc__, WORKLOADS), argv)
    bench = Bench(options.workloads, options.trace, options.size, 1)
    print("| workload |", " | ".join(name for name, _, _ in COLUMNS), "| wiped, p90 without / with |")
    print("|---|" + "--:|" * (len(COLUMNS) + 1))
    for workload in measured(options):
        rows = [cells(bench, workload, seed) for seed in range(1, options.seeds + 1)]
        print(f"| {workload} |", " | ".join(map(span, zip(*rows, strict=True))), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
