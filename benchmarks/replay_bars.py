"""What `auto` promises, measured by the replay: python benchmarks/replay_bars.py, or `make replay`.

    make replay                                             all bars; the trace by REPLAY_TRACE
    python benchmarks/replay_bars.py --bars 1 4 --seeds 1   some of them, quicker
    python benchmarks/replay_bars.py --cells                also a table of every cell

A cell is a workload, a number of workers and a load: 5 x 3 x 3 of them. Loads are fractions of the capacity,
which is measured first for each workload, fleet and seed (docs/reference/replay.md, "Terms"). "Best" is the
best of POLICIES in the same cell and seed. Every bar is a ratio within one run, and the worst cell is named.
The worst seed decides, but at a load of 0.95: so near to capacity a seed's p90 is twice another's, and the
means of the seeds decide.

Conversation is a trace that is not in the repository: the conversation trace of Mooncake's FAST'25 release,
named by --trace or the environment variable REPLAY_TRACE. Without it the bars are those of the other
workloads.

Exit status: 0 when every bar that was measured holds, 1 when one does not, 2 for a mistake.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from vllm_router.replay import (
    Capacity,
    Event,
    Fleet,
    PeerSync,
    PolicySpec,
    Row,
    Trace,
    TraceError,
    capacity,
    generate,
    parse_policies,
    read_trace,
    run,
)
from vllm_router.replay._engine import coefficients
from vllm_router.replay.capacity import Prober

CONVERSATION = "conversation"
WORKLOADS = (CONVERSATION, "rag", "chat", "adv", "hot")
WORKERS = (4, 8, 16)
USUAL_WORKERS = 8
LOADS = (0.5, 0.85, 0.95)

EVENTS = "events_delay_s=0.05"
AUTO = "auto"
AUTO_BY_EVENTS = f"auto:{EVENTS}"
FIRST_VERSION = "compare_auto_v1"
SECOND_VERSION = "compare_auto_v2"
LMETRIC = f"compare_lmetric:{EVENTS}"
LEAST_LOAD = "least_load"
WITHOUT_PRICE = "compare_auto_b0"
# auto without one of its parts.
ONE_SPEED = "compare_auto_one_speed"
NO_BALANCE = "compare_auto_no_balance"
NO_COPIES = "compare_auto_no_copies"
# Whose best auto is compared with.
POLICIES = (
    FIRST_VERSION,
    f"{FIRST_VERSION}:{EVENTS}",
    SECOND_VERSION,
    LMETRIC,
    "compare_smg",
    LEAST_LOAD,
    "cache_aware",
)
# Of closed loops, where nobody hears KV events.
OTHERS = (
    SECOND_VERSION,
    "cache_aware",
    "vllm_cache_aware",
    "consistent_hash",
    LEAST_LOAD,
    "compare_lmetric",
    "compare_smg",
)

# adv and hot reuse so little at a time that fractions of their working set are no cache at all.
FIXED_CACHE_TOKENS = {"adv": 300_000, "hot": 300_000}
SLO_S = {"rag": 2.8}

Cells = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Setting:
    """A fleet but for its workload."""

    name: str = dataclasses.field(default="", compare=False)  # the same fleet by another name is the same
    workers: int = USUAL_WORKERS
    engine: str = "h200_32b"
    scaled: str = ""
    by: float = 1
    max_running: int = 256
    step_tokens: int = 8192
    cache: float = 1
    wipe_every_s: float = 0
    slow: bool = False
    told: bool = False
    routers: int = 1
    peer_sync: PeerSync | None = None

    def fleet(self, workload: str) -> Fleet:
        """The fleet of a workload."""
        tokens = FIXED_CACHE_TOKENS.get(workload)
        slow = [0.5] * (self.workers // 4) + [1.0] * (self.workers - self.workers // 4)
        return Fleet(
            workers=self.workers,
            cache_tokens=tokens if tokens is None else int(tokens * self.cache),
            cache_share=self.cache,
            engine=self.engine,
            coefficients={self.scaled: coefficients(self.engine)[self.scaled] * self.by}
            if self.scaled
            else {},
            max_running=self.max_running,
            step_tokens=self.step_tokens,
            speeds=slow if self.slow else (),
            weights=slow if self.told else (),
            wipe_every_s=self.wipe_every_s,
            routers=self.routers,
            peer_sync=self.peer_sync,
        )


USUAL = Setting()
SCALED = ("prefill_us_per_token", "context_ns_per_token", "step_ms", "decode_us_per_sequence")
SLOW_QUARTER = Setting("a slow quarter", slow=True)
VARIATIONS = (
    Setting("a smaller model", engine="h100_8b"),
    Setting("a larger model", engine="h200x4_70b"),
    *(Setting(f"{name} x {by:g}", scaled=name, by=by) for name in SCALED for by in (0.5, 2)),
    Setting("64 running requests", max_running=64),
    Setting("half the cache", cache=0.5),
    Setting("2,048 tokens a step", step_tokens=2048),
    SLOW_QUARTER,
    Setting("a cache wiped every 60 s", wipe_every_s=60),
)
TOLD_WEIGHTS = Setting("a slow quarter with weights", slow=True, told=True)


@dataclasses.dataclass(frozen=True)
class Loop:
    """Traffic whose requests wait for responses, and its fleet."""

    name: str
    workload: str
    users: int
    fleet: Fleet = dataclasses.field(compare=False)

    def trace(self, seed: int, size: float) -> Trace:
        """The traffic of a seed."""
        who = {"agents" if self.workload == "agents" else "users": self.users}
        trace = generate(self.workload, seed, **who)
        return trace.head(max(1, int(len(trace) * size)))


# The workers of `vllm-router demo`.
DEMO: dict[str, Any] = {"engine": "demo", "cache_tokens": 10_240}
UNEQUAL = (1.0, 0.4, 1.0, 2.0)
DEMOS = (
    Loop("demo, 12 users", "demo", 12, Fleet(workers=3, **DEMO)),
    Loop("demo, 24 users", "demo", 24, Fleet(workers=3, **DEMO)),
)
LOOPS = (
    *DEMOS,
    Loop("200 users, 4 workers", "users", 200, Fleet(workers=4)),
    Loop("400 users, 4 workers", "users", 400, Fleet(workers=4)),
    Loop("400 users, prompts first", "users", 400, Fleet(workers=4, prompts_first=True)),
)
NOT_TOLD = (
    Loop("demo, unequal speeds", "demo", 16, Fleet(workers=4, speeds=UNEQUAL, **DEMO)),
    Loop("400 users, unequal speeds", "users", 400, Fleet(workers=4, speeds=UNEQUAL)),
    Loop(
        "400 users, one slows down",
        "users",
        400,
        Fleet(workers=4, events=[Event(120, "speed", 1, 0.4)]),
    ),
)
WHOLE = (
    Loop("demo, whole responses", "demo", 12, Fleet(workers=3, whole_responses=True, **DEMO)),
    Loop("400 users, whole responses", "users", 400, Fleet(workers=4, whole_responses=True)),
)


class Bench:
    """Traces, capacities and runs, each made once."""

    def __init__(self, workloads: Sequence[str], trace: str | None, size: float, jobs: int) -> None:
        self.workloads = workloads
        self._trace = trace
        self._size = size
        self._pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.requests = 0

    def each(self, measure: Callable[..., float], *axes: Iterable[object]) -> Cells:
        """A value for each point of the axes; a cell's name is what differs."""
        points: list[tuple[object, ...]] = [()]
        for axis in axes:
            points = [(*point, value) for point in points for value in axis]
        values = self._pool.map(lambda point: measure(*point), points)
        return {
            " ".join(
                value.name if isinstance(value, (Setting, Loop)) else str(value) for value in point
            ): found
            for point, found in zip(points, values, strict=True)
        }

    @functools.cache  # noqa: B019, it lives as long as the program
    def trace(self, workload: str, seed: int) -> Trace:
        """A workload of a seed."""
        if workload == CONVERSATION:
            assert self._trace is not None
            trace = read_trace(self._trace, seed=seed)
        else:
            trace = generate(workload, seed)
        trace = trace.head(max(1, int(len(trace) * self._size)))
        trace.prepare()
        return trace

    def _tick(self, trace: Trace) -> Callable[[], None]:
        def tick() -> None:
            self.requests += len(trace)

        return tick

    @functools.cache  # noqa: B019
    def capacity(self, workload: str, setting: Setting, seed: int) -> Capacity:
        """What a fleet can take of it."""
        trace = self.trace(workload, seed)
        tick = self._tick(trace)
        return capacity(trace, setting.fleet(workload), seed=seed, slo_s=SLO_S.get(workload), tick=tick)

    @functools.cache  # noqa: B019
    def row(self, workload: str, setting: Setting, load: float, policy: str, seed: int) -> Row:
        """One policy at one load."""
        trace = self.trace(workload, seed)
        rate = load * self.capacity(workload, setting, seed).rate
        (row,) = run(trace, [policy], setting.fleet(workload), rate=rate, seeds=[seed], jobs=1)
        self._tick(trace)()
        return row

    @functools.cache  # noqa: B019
    def goodput(self, workload: str, setting: Setting, policy: str, seed: int) -> float:
        """Its highest rate within the SLO of the usual fleet of that size."""
        trace = self.trace(workload, seed)
        known = self.capacity(workload, Setting(workers=setting.workers), seed)
        prober = Prober(trace, setting.fleet(workload), seed, self._tick(trace))
        return prober.goodput(spec(policy), known.slo_s, known.rate)

    def p90_to_best(self, workload: str, setting: Setting, load: float, seed: int) -> float:
        """auto's p90 time to first token / the best policy's."""
        best = min(self.p90(workload, setting, load, policy, seed) for policy in POLICIES)
        return self.p90(workload, setting, load, AUTO, seed) / best

    def p90(self, workload: str, setting: Setting, load: float, policy: str, seed: int) -> float:
        """The p90 time to first token."""
        return float(self.row(workload, setting, load, policy, seed)["ttft_p90_s"])

    def over(
        self, column: str, policy: str, other: str, workload: str, setting: Setting, load: float, seed: int
    ) -> float:
        """One policy's figure / another's."""
        row = functools.partial(self.row, workload, setting, load)
        return float(row(policy, seed)[column] / row(other, seed)[column])

    @functools.cache  # noqa: B019
    def loop_row(self, loop: Loop, policy: str, seed: int) -> Row:
        """One policy in a closed loop."""
        trace = loop.trace(seed, self._size)
        (row,) = run(trace, [policy], loop.fleet, seeds=[seed], jobs=1)
        self._tick(trace)()
        return row

    def loop_to_best(self, column: str, loop: Loop, seed: int) -> float:
        """auto's figure / the best other policy's."""
        best = min(float(self.loop_row(loop, policy, seed)[column]) for policy in OTHERS)
        return float(self.loop_row(loop, AUTO, seed)[column]) / best

    def goodput_to_best(self, workload: str, setting: Setting, seed: int) -> float:
        """auto's goodput / the best policy's."""
        found = [self.goodput(workload, setting, policy, seed) for policy in (AUTO, *POLICIES)]
        return found[0] / max(found)


def spec(policy: str) -> PolicySpec:
    """A policy and its options."""
    (parsed,) = parse_policies([policy])
    return parsed


def geometric_mean(values: Iterable[float]) -> float:
    """The root of the product."""
    logarithms = [math.log(value) for value in values]
    return math.exp(math.fsum(logarithms) / len(logarithms))


def mean(values: Iterable[float]) -> float:
    """The plain one."""
    given = list(values)
    return math.fsum(given) / len(given)


@dataclasses.dataclass(frozen=True)
class Bar:
    """One promise: values of cells, made into one per seed, and what that must not pass."""

    number: int
    what: str
    limit: float
    goal: float | None
    cells: Callable[[Bench, int], Cells]
    at_least: bool = False
    combine: Callable[[Iterable[float]], float] | None = None  # None: the worst cell
    needs: tuple[str, ...] = ()  # workloads; none: any
    of_means: bool = False  # each cell's mean over the seeds decides

    def value(self, cells: Cells) -> float:
        """A seed's."""
        return (self.combine or self.worst)(cells.values())

    def worst(self, values: Iterable[float]) -> float:
        """The value that is nearest to breaking it, or breaks it most."""
        return min(values) if self.at_least else max(values)

    def worst_cell(self, cells: Cells) -> str:
        """Its name."""
        return next(cell for cell, value in cells.items() if value == self.worst(cells.values()))

    def holds(self, value: float) -> bool:
        """Whether a value keeps the promise."""
        return value >= self.limit if self.at_least else value <= self.limit


def fleets(*sizes: int) -> list[Setting]:
    """Usual fleets."""
    return [Setting(f"{size} workers", workers=size) for size in sizes]


def p90_cells(settings: Sequence[Setting], loads: Sequence[float]) -> Callable[[Bench, int], Cells]:
    """p90 / best of these cells."""
    return lambda bench, seed: bench.each(
        functools.partial(bench.p90_to_best, seed=seed), bench.workloads, settings, loads
    )


def end_to_end_cells(bench: Bench, seed: int) -> Cells:
    """Mean end-to-end time / the first version's."""
    measure = functools.partial(bench.over, "e2e_mean_s", AUTO, FIRST_VERSION, seed=seed)
    return bench.each(measure, bench.workloads, fleets(*WORKERS), LOADS[:2])


def goodput_cells(bench: Bench, seed: int) -> Cells:
    """Goodput / the best policy's."""
    measure = functools.partial(bench.goodput_to_best, seed=seed)
    return bench.each(measure, bench.workloads, fleets(*WORKERS))


def goodput_over(other: Setting, policy: str, setting: Setting = USUAL) -> Callable[[Bench, int], Cells]:
    """auto's goodput in a setting / a policy's in another one."""

    def cells(bench: Bench, seed: int) -> Cells:
        def measure(workload: str) -> float:
            return bench.goodput(workload, setting, AUTO, seed) / bench.goodput(workload, other, policy, seed)

        return bench.each(measure, bench.workloads)

    return cells


def control(policy: str, workload: str) -> Callable[[Bench, int], Cells]:
    """p90 of a policy that must fail / auto's."""
    return lambda bench, seed: {
        f"{workload} 0.95": bench.over("ttft_p90_s", policy, AUTO, workload, USUAL, 0.95, seed)
    }


def control_cells(policy: str, workload: str, loads: Sequence[float]) -> Callable[[Bench, int], Cells]:
    """The same at several loads."""
    return lambda bench, seed: bench.each(
        lambda load: bench.over("ttft_p90_s", policy, AUTO, workload, USUAL, load, seed), loads
    )


def loop_cells(column: str, loops: Sequence[Loop]) -> Callable[[Bench, int], Cells]:
    """auto / best in closed loops."""
    return lambda bench, seed: bench.each(functools.partial(bench.loop_to_best, column, seed=seed), loops)


def loop_control(policy: str, column: str, loops: Sequence[Loop]) -> Callable[[Bench, int], Cells]:
    """A policy that must be worse / auto."""

    def measure(bench: Bench, loop: Loop, seed: int) -> float:
        return float(bench.loop_row(loop, policy, seed)[column] / bench.loop_row(loop, AUTO, seed)[column])

    return lambda bench, seed: bench.each(lambda loop: measure(bench, loop, seed), loops)


BARS = (
    Bar(1, "p90 / best, loads 0.5 and 0.85, each cell", 1.12, 1.03, p90_cells(fleets(*WORKERS), LOADS[:2])),
    Bar(
        2,
        "p90 / best, load 0.95, 4 and 8 workers, each",
        1.15,
        1.03,
        p90_cells(fleets(4, 8), LOADS[2:]),
        of_means=True,
    ),
    Bar(
        3,
        "p90 / best, load 0.95, 16 workers, each",
        1.30,
        1.10,
        p90_cells(fleets(16), LOADS[2:]),
        of_means=True,
    ),
    Bar(
        4,
        "p90 / best, geometric mean",
        1.03,
        1.00,
        p90_cells(fleets(*WORKERS), LOADS),
        combine=geometric_mean,
    ),
    Bar(5, "goodput / best, each workload and fleet", 0.94, 0.98, goodput_cells, at_least=True),
    Bar(5, "goodput / best, mean", 0.98, 0.99, goodput_cells, at_least=True, combine=mean),
    Bar(6, "mean end-to-end / first version, up to 0.85, each", 1.15, 1.03, end_to_end_cells),
    Bar(
        7,
        "goodput, learned index / events, each",
        0.96,
        0.98,
        goodput_over(USUAL, AUTO_BY_EVENTS),
        at_least=True,
    ),
    Bar(
        8,
        "p90 / best, other engines, geometric mean",
        1.06,
        1.02,
        p90_cells(VARIATIONS, LOADS[1:]),
        combine=geometric_mean,
    ),
    Bar(8, "p90 / best, a slow quarter with weights, each", 1.30, 1.10, p90_cells([TOLD_WEIGHTS], LOADS[1:])),
    Bar(
        9,
        "goodput, a quarter at half speed / none, each",
        0.84,
        0.87,
        goodput_over(USUAL, AUTO, SLOW_QUARTER),
        at_least=True,
    ),
    Bar(
        10, "control: p90 of LMetric / auto", 10, None, control(LMETRIC, "rag"), at_least=True, needs=("rag",)
    ),
    Bar(
        10,
        "control: p90 of least_load / auto",
        100,
        None,
        control(LEAST_LOAD, "rag"),
        at_least=True,
        needs=("rag",),
    ),
    Bar(
        10,
        "control: p90 of the second version without U * r / auto",
        5,
        None,
        control(WITHOUT_PRICE, "chat"),
        at_least=True,
        needs=("chat",),
    ),
    Bar(11, "closed loops: mean TTFT / best, each", 1.12, 1.00, loop_cells("ttft_mean_s", LOOPS)),
    Bar(11, "closed loops: p90 / best, each", 1.15, 1.00, loop_cells("ttft_p90_s", LOOPS)),
    Bar(11, "closed loops: end to end / best, each", 1.12, 1.00, loop_cells("e2e_mean_s", LOOPS)),
    Bar(12, "speeds nobody tells: mean TTFT / best, each", 1.03, 0.85, loop_cells("ttft_mean_s", NOT_TOLD)),
    Bar(13, "whole responses: mean TTFT / best, each", 1.20, 1.00, loop_cells("ttft_mean_s", WHOLE)),
    Bar(
        14,
        "control: p90 of the second version / auto",
        1.4,
        None,
        loop_control(SECOND_VERSION, "ttft_p90_s", DEMOS[:1]),
        at_least=True,
    ),
    Bar(
        15,
        "control: mean TTFT with one speed / auto",
        1.08,
        None,
        loop_control(ONE_SPEED, "ttft_mean_s", NOT_TOLD),
        at_least=True,
        combine=geometric_mean,
    ),
    Bar(
        16,
        "control: p90 without balance / auto",
        1.1,
        None,
        loop_control(NO_BALANCE, "ttft_p90_s", DEMOS),
        at_least=True,
        combine=geometric_mean,
    ),
    Bar(
        16,
        "control: p90 without copies / auto",
        1.01,
        None,
        control_cells(NO_COPIES, "adv", LOADS),
        at_least=True,
        combine=geometric_mean,
        needs=("adv",),
    ),
)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    add("--bars", nargs="+", type=int, choices=range(1, 17), default=list(range(1, 17)))
    add("--cells", action="store_true", help="also print every cell of every bar")
    add("--trace", default=os.environ.get("REPLAY_TRACE") or None, help="Mooncake's conversation trace")
    add("--seeds", type=int, default=3, help="seeds 1 to N; default: 3")
    add("--size", type=float, default=1.0, help="part of each trace; below 1 for trying out only")
    add("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="simulations at a time")
    return parser


def measure(bar: Bar, bench: Bench, seeds: int, with_cells: bool) -> bool:
    """Prints a line, or a few; whether the bar holds."""
    found = [bar.cells(bench, seed) for seed in range(1, seeds + 1)]
    means = {cell: geometric_mean(cells[cell] for cells in found) for cell in found[0]}
    worst = bar.worst([bar.value(cells) for cells in found])
    decides = bar.value(means) if bar.of_means else worst
    cell = bar.worst_cell(means)
    print(
        f"{bar.number:3} {bar.what:50} {bar.value(means):8.3f} {worst:8.3f}  "
        f"{'>=' if bar.at_least else '<='} {bar.limit:<5g} {'' if bar.goal is None else f'{bar.goal:g}':>5}  "
        f"{'holds' if bar.holds(decides) else 'DOES NOT HOLD':13} {cell} ({means[cell]:.3f})",
        flush=True,
    )
    if with_cells:
        for cell in means:
            print(" " * 4 + f"{cell:50}" + " ".join(f"{cells[cell]:8.3f}" for cells in found))
    return bar.holds(decides)


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.seeds < 1 or options.jobs < 1 or not 0 < options.size <= 1:
        parser.error("--seeds and --jobs must be 1 or more, --size above 0 and at most 1")
    if options.trace is not None and not Path(options.trace).is_file():
        parser.error(f"the trace {options.trace} is not there; name Mooncake's conversation_trace.jsonl")
    workloads = [name for name in options.workloads if name != CONVERSATION or options.trace is not None]
    if len(workloads) < len(options.workloads):
        print("conversation is not measured: its trace is not here; name it with --trace or REPLAY_TRACE")
    if not workloads:
        return 0
    bench = Bench(workloads, options.trace, options.size, options.jobs)
    begin = time.monotonic()
    held = []
    print(f"bar {'what':50} {'of means':>8} {'worst':>8}  {'bar':8} {'goal':>5}  {'':13} worst cell's mean")
    try:
        for bar in BARS:
            if bar.number in options.bars and all(name in workloads for name in bar.needs):
                held.append(measure(bar, bench, options.seeds, options.cells))
    except TraceError as error:
        print(f"replay_bars.py: error: {error}", file=sys.stderr)
        return 2
    seconds = time.monotonic() - begin
    print(
        f"{sum(held)} hold, {len(held) - sum(held)} do not; {bench.requests:,} requests in {seconds:.0f} s "
        f"({bench.requests / max(seconds, 1e-9):,.0f}/s)"
    )
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
