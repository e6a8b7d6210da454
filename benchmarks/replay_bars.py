"""What `auto` promises, measured by the replay: python benchmarks/replay_bars.py, or `make replay`.

    make replay                                                        all bars; the trace by REPLAY_TRACE
    python benchmarks/replay_bars.py --workloads chat rag --bars 1 2   some of them
    python benchmarks/replay_bars.py --fleets 8 --caches 1             a smaller grid for bar 5

Each bar is printed with its measured value, the worst seed's in brackets; that one decides. Loads are
fractions of the capacity that is measured first, per workload and seed (docs/reference/replay.md, "Terms").
Conversation is a trace that is not in the repository: the conversation trace of Mooncake's FAST'25 release,
named by --trace or the environment variable REPLAY_TRACE. Without it, its bars are said to be not measured.

Exit status: 0 when every bar that was measured holds, 1 when one does not, 2 for a mistake.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vllm_router.replay import (
    Capacity,
    Fleet,
    PolicySpec,
    Row,
    Trace,
    TraceError,
    _engine,
    capacity,
    generate,
    parse_policies,
    read_trace,
    run,
)
from vllm_router.replay.capacity import Prober
from vllm_router.router_args import BUILT_POLICIES

WORKLOADS = ("conversation", "rag", "chat", "adv", "hot")
WORKERS = 8
AUTO = "auto"
DOCUMENTED = "compare_cache_aware_documented"
REFERENCE = "compare_cache_aware_reference"
SMG = "compare_smg"
LMETRIC = "compare_lmetric:events_delay_s=0.05"
DYNAMO = "compare_dynamo:events_delay_s=0.05"
AUTO_BY_EVENTS = "compare_auto:events_delay_s=0.05"
LEAST_REQUESTS = "least_load"
# Whose goodput auto's is compared with in bar 5.
RIVALS = (DOCUMENTED, REFERENCE, SMG, LMETRIC, DYNAMO, LEAST_REQUESTS)

# adv and hot reuse so little at a time that fractions of their working set are no cache at all.
FIXED_CACHE_TOKENS = {"adv": 300_000, "hot": 300_000}
SLO_S = {"rag": 2.8}


class NotMeasured(Exception):  # noqa: N818, it is no error
    """Why a bar has no value."""


@dataclasses.dataclass(frozen=True)
class Bar:
    """One promise: a value per seed, and what it must not pass."""

    number: int
    workload: str
    what: str
    limit: float
    measure: Callable[[Bench, str, int], float]
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """Whether a seed's value keeps the promise."""
        return value >= self.limit if self.at_least else value <= self.limit

    def worst(self, values: Sequence[float]) -> float:
        """The value that is nearest to breaking it, or breaks it most."""
        return min(values) if self.at_least else max(values)


class Bench:
    """Traces, capacities and runs, each made once."""

    def __init__(self, trace: str | None, size: float) -> None:
        self._trace = trace
        self._size = size
        self.requests = 0

    @functools.cache  # noqa: B019, it lives as long as the program
    def trace(self, workload: str, seed: int) -> Trace:
        """A workload of a seed."""
        if workload == "conversation":
            if self._trace is None:
                raise NotMeasured("its trace is not here: name the file with --trace or REPLAY_TRACE")
            trace = read_trace(self._trace, seed=seed)
            return trace.head(max(1, int(len(trace) * self._size)))
        trace = generate(workload, seed)
        return trace.head(max(1, int(len(trace) * self._size)))

    def fleet(
        self, workload: str, workers: int | None = None, cache_share: float = 1.0, **more: object
    ) -> Fleet:
        """Its usual fleet."""
        return Fleet(
            workers=workers or WORKERS,
            cache_tokens=FIXED_CACHE_TOKENS.get(workload),
            cache_share=cache_share,
            **more,  # type: ignore[arg-type]
        )

    @functools.cache  # noqa: B019
    def capacity(self, workload: str, seed: int) -> Capacity:
        """What the usual fleet can take of it."""
        trace = self.trace(workload, seed)
        slo_s = SLO_S.get(workload)
        return capacity(trace, self.fleet(workload), seed=seed, slo_s=slo_s, tick=self._tick(trace))

    def _tick(self, trace: Trace) -> Callable[[], None]:
        def tick() -> None:
            self.requests += len(trace)

        return tick

    @functools.cache  # noqa: B019
    def row(self, workload: str, seed: int, policy: str, load: float, wipe_every_s: float = 0) -> Row:
        """One policy at one load."""
        trace = self.trace(workload, seed)
        rate = load * self.capacity(workload, seed).rate
        fleet = self.fleet(workload, wipe_every_s=wipe_every_s)
        (row,) = run(trace, [known(policy)], fleet, rate=rate, seeds=[seed], jobs=1)
        self.requests += len(trace)
        return row

    @functools.cache  # noqa: B019
    def goodput(
        self, workload: str, seed: int, policy: str, workers: int, cache_share: float, slow: bool = False
    ) -> float:
        """Its highest rate within the SLO. A quarter of the workers may be slow, and nobody says so."""
        trace = self.trace(workload, seed)
        speeds = [0.5] * (workers // 4) + [1.0] * (workers - workers // 4) if slow else []
        slo_s = self._slo(workload, seed, workers, cache_share)
        fleet = self.fleet(workload, workers, cache_share, speeds=speeds)
        prober = Prober(trace, fleet, seed, self._tick(trace))
        return prober.goodput(known(policy), slo_s, self.capacity(workload, seed).rate * workers / WORKERS)

    @functools.cache  # noqa: B019
    def _slo(self, workload: str, seed: int, workers: int, cache_share: float) -> float:
        if workload in SLO_S:
            return SLO_S[workload]
        if (workers, cache_share) == (WORKERS, 1.0):
            return self.capacity(workload, seed).slo_s
        trace = self.trace(workload, seed)
        prober = Prober(trace, self.fleet(workload, workers, cache_share), seed, self._tick(trace))
        return prober.slo_s(known(AUTO), prober.saturating_rate(known(AUTO)))


def known(policy: str) -> PolicySpec:
    """A policy of this build."""
    name = policy.split(":", maxsplit=1)[0]
    if name not in (*BUILT_POLICIES, *_engine.comparison_policies()):
        raise NotMeasured(f"this build has no policy {name}")
    (spec,) = parse_policies([policy])
    return spec


def ratio(column: str, other: str, load: float) -> Callable[[Bench, str, int], float]:
    """auto / another policy."""
    return lambda bench, workload, seed: (
        bench.row(workload, seed, AUTO, load)[column] / bench.row(workload, seed, other, load)[column]
    )


def inverse(column: str, other: str, load: float) -> Callable[[Bench, str, int], float]:
    """Another policy / auto."""
    return lambda bench, workload, seed: 1 / ratio(column, other, load)(bench, workload, seed)


def value(column: str, load: float) -> Callable[[Bench, str, int], float]:
    """A figure of auto."""
    return lambda bench, workload, seed: bench.row(workload, seed, AUTO, load)[column]


def share_of_best(workers: int, cache_share: float) -> Callable[[Bench, str, int], float]:
    """auto's goodput / the best policy's."""

    def measure(bench: Bench, workload: str, seed: int) -> float:
        mine = bench.goodput(workload, seed, AUTO, workers, cache_share)
        best = mine
        for policy in RIVALS:
            try:
                best = max(best, bench.goodput(workload, seed, policy, workers, cache_share))
            except NotMeasured:
                continue
        return mine / best

    return measure


def wiped(bench: Bench, workload: str, seed: int) -> float:
    """p90 with one cache wiped every 60 s: of auto, which is not told / of auto by events, which is."""
    told = bench.row(workload, seed, AUTO_BY_EVENTS, 0.85, 60.0)["ttft_p90_s"]
    return float(bench.row(workload, seed, AUTO, 0.85, 60.0)["ttft_p90_s"] / told)


def learned(bench: Bench, workload: str, seed: int) -> float:
    """Goodput of auto, whose index learns / of auto by events."""
    return bench.goodput(workload, seed, AUTO, WORKERS, 1.0) / bench.goodput(
        workload, seed, AUTO_BY_EVENTS, WORKERS, 1.0
    )


def slowed(bench: Bench, workload: str, seed: int) -> float:
    """Goodput with a quarter of the workers at half speed / without."""
    return bench.goodput(workload, seed, AUTO, WORKERS, 1.0, True) / bench.goodput(
        workload, seed, AUTO, WORKERS, 1.0
    )


def bars(fleets: Sequence[int], caches: Sequence[float]) -> Iterator[Bar]:
    """All of them."""
    p90 = "ttft_p90_s"
    for load, limits in (
        (0.85, {"conversation": 0.40, "chat": 0.60, "rag": 1.02, "adv": 0.75, "hot": 1.05}),
        (0.5, {"conversation": 0.55, "chat": 0.85, "rag": 1.02, "adv": 1.02, "hot": 1.02}),
    ):
        for workload, limit in limits.items():
            for settings, policy in (("0.5/32/1.1", DOCUMENTED), ("0.3/64/1.5", REFERENCE)):
                what = f"p90 of auto / reference's cache_aware {settings}, load {load}"
                yield Bar(1, workload, what, limit, ratio(p90, policy, load))
    for workload, limit in {"conversation": 0.42, "chat": 0.85}.items():
        yield Bar(2, workload, "p90 of auto / SMG's cache_aware, load 0.85", limit, ratio(p90, SMG, 0.85))
    for workload, limit in {"conversation": 0.95, "rag": 0.10, "chat": 1.20}.items():
        yield Bar(2, workload, "p90 of auto / LMetric, load 0.85", limit, ratio(p90, LMETRIC, 0.85))
    for workload, limit in {"conversation": 7.0, "rag": 0.8, "chat": 0.40}.items():
        yield Bar(3, workload, "p90 of auto in s, load 0.95", limit, value(p90, 0.95))
    for workload in ("conversation", "rag"):
        what = "p90 of least requests / auto, load 0.95"
        yield Bar(3, workload, what, 30, inverse(p90, LEAST_REQUESTS, 0.95), at_least=True)
    for workload, column, limit in (
        ("conversation", "hit_share", 0.27),
        ("conversation", "ttft_p50_s", 0.85),
        ("conversation", p90, 4.5),
        ("conversation", "ttft_p99_s", 24.0),
        ("rag", "hit_share", 0.73),
        ("rag", p90, 0.75),
        ("chat", "hit_share", 0.70),
        ("chat", p90, 0.31),
    ):
        what = f"{column} of auto, load 0.85"
        yield Bar(4, workload, what, limit, value(column, 0.85), at_least=column == "hit_share")
    for workload in WORKLOADS:
        for workers in fleets:
            for cache in caches if workload not in FIXED_CACHE_TOKENS else caches[:1]:
                cells = f"{workers} workers"
                cells += f", {cache:g} W" if workload not in FIXED_CACHE_TOKENS else ""
                limit = 0.90 if workload == "hot" else 0.96
                what = f"goodput of auto / the best policy's, {cells}"
                yield Bar(5, workload, what, limit, share_of_best(workers, cache), at_least=True)
    for workload in ("conversation", "rag", "chat"):
        what = "p90 of auto / by events, a cache wiped every 60 s, load 0.85"
        yield Bar(6, workload, what, 1.15, wiped)
    for workload in WORKLOADS:
        what = "goodput of auto / by events"
        yield Bar(6, workload, what, 0.97, learned, at_least=True)
    for workload in WORKLOADS:
        what = "goodput of auto, 2 of 8 workers at half speed / none"
        yield Bar(6, workload, what, 0.84, slowed, at_least=True)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    add("--bars", nargs="+", type=int, choices=range(1, 7), default=list(range(1, 7)))
    add("--trace", default=os.environ.get("REPLAY_TRACE") or None, help="Mooncake's conversation trace")
    add("--seeds", type=int, default=3, help="seeds 1 to N; default: 3")
    add("--fleets", nargs="+", type=int, default=[8, 4, 16], help="of bar 5; default: 8 4 16")
    add("--caches", nargs="+", type=float, default=[1, 0.25, 4], help="of bar 5; default: 1 0.25 4")
    add("--size", type=float, default=1.0, help="part of each trace; below 1 for trying out only")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.seeds < 1 or not 0 < options.size <= 1 or min(options.fleets) < 1 or min(options.caches) <= 0:
        parser.error("--seeds and --fleets must be 1 or more, --caches above 0, --size above 0 and at most 1")
    if options.trace is not None and not Path(options.trace).is_file():
        parser.error(f"the trace {options.trace} is not there; name Mooncake's conversation_trace.jsonl")
    bench = Bench(options.trace, options.size)
    begin = time.monotonic()
    broken = missing = held = 0
    print(f"{'bar':3} {'workload':13} {'what':62} {'measured':>10} {'worst':>10}  bar")
    for bar in bars(options.fleets, options.caches):
        if bar.number not in options.bars or bar.workload not in options.workloads:
            continue
        limit = f"{'>=' if bar.at_least else '<='} {bar.limit:g}"
        try:
            values = [bar.measure(bench, bar.workload, seed) for seed in range(1, options.seeds + 1)]
        except NotMeasured as reason:
            missing += 1
            print(f"{bar.number:3} {bar.workload:13} {bar.what:62} not measured: {reason}", flush=True)
            continue
        except TraceError as error:
            print(f"replay_bars.py: error: {error}", file=sys.stderr)
            return 2
        worst = bar.worst(values)
        ok = bar.holds(worst)
        held, broken = held + ok, broken + (not ok)
        mean = math.fsum(values) / len(values)
        print(
            f"{bar.number:3} {bar.workload:13} {bar.what:62} {mean:10.3f} [{worst:8.3f}]  {limit:8} "
            f"{'holds' if ok else 'DOES NOT HOLD'}",
            flush=True,
        )
    seconds = time.monotonic() - begin
    print(
        f"{held} hold, {broken} do not, {missing} were not measured; "
        f"{bench.requests:,} requests in {seconds:.0f} s ({bench.requests / max(seconds, 1e-9):,.0f}/s)"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
