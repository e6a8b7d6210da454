"""What priority classes and fair tenants are worth, by the replay: python -m benchmarks.replay_classes

`classes`: conversations at 0.32 of the fleet's capacity beside a batch job of 4,000 + 400 tokens, together
0.89 and 0.98 of it, and beside a backlog of that job without end. `tenants`: eight tenants with documents, of
which one has eight times as many requests open, beside a light one (docs/reference/replay.md). Each is played

    to the engines    the router sends what comes at once
    FIFO              in the order of arrival, at most 48 requests at a worker
    ...               through the queues of the router, as docs/how-to/share_a_fleet.md describes them

and then compared with six bars. Means over the seeds; times in seconds. Exit status 1: a bar is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_router.replay import Admission, Fleet, PolicySpec, Trace, _engine, capacity, generate
from vllm_router.replay.admission import Share, Window, all_default, share_of, shares_of
from vllm_router.replay.shared import (
    FLOOD,
    INTERACTIVE,
    LIGHT,
    TENANT_REQUESTS,
    TENANT_USERS,
    TENANTS,
    batch_requests,
    light_requests,
    merged,
    of_class,
    tenants_workload,
)

POLICY = PolicySpec("auto")
INTERACTIVE_LOAD = 0.32
LOADS = (0.89, 0.98)
FLOODED = "flood"
WINDOW_PER_WORKER = 48
FULL_PER_WORKER = 64
BACKLOG_PER_WORKER = 200
DOCUMENTS = (20, 60)
# What the first requests do to an empty fleet is left out.
WARM_SHARE = 0.2
SHARE_SECONDS = 60.0
FAVOURED, FAVOUR = "tenant-1", 4.0

# Nobody is rejected, so that arms serve the same requests.
PATIENT = "queue_size=65536 queue_timeout_ms=86400000"


@dataclasses.dataclass(frozen=True)
class Arm:
    """How requests come to the workers."""

    name: str
    lines: str | None = None
    """Of the router's classes; None: it has none."""
    is_blind: bool = False
    """All requests are alike to the router."""
    search: bool = True
    per_worker: int = 0
    """Open requests at a worker at most; 0: no limit."""


DIRECT = Arm("to the engines")
FIFO = Arm(
    f"FIFO, {WINDOW_PER_WORKER} a worker",
    f"class default {PATIENT} gate=open",
    True,
    False,
    WINDOW_PER_WORKER,
)
STRICT = Arm(
    f"strict classes, {WINDOW_PER_WORKER} a worker",
    "\n".join(f"class {name} {PATIENT} gate=open" for name in ("interactive", "default", "batch")),
    per_worker=WINDOW_PER_WORKER,
)
CLASSES = Arm("classes", "\n".join(f"class {name} {PATIENT}" for name in ("interactive", "default", "batch")))
TOKENS = dataclasses.replace(CLASSES, name="fair tokens", search=False)
FAIR = dataclasses.replace(CLASSES, name="fair, prompts where they are cached")
WEIGHTED = dataclasses.replace(
    FAIR, name="weighted", lines=f"{CLASSES.lines}\ntenant weight={FAVOUR:g} {FAVOURED}"
)
CLASS_ARMS = (DIRECT, FIFO, STRICT, CLASSES)
TENANT_ARMS = (DIRECT, FIFO, TOKENS, FAIR)

Result = dict[str, Any]


def play(trace: Trace, arm: Arm, fleet: Fleet, seed: int) -> Result:
    """What `simulate` returns of one run."""
    played = all_default(trace) if arm.is_blind else trace
    routing = fleet.routing() | POLICY.as_core(trace.block_size, fleet.index_blocks(trace), seed)
    if arm.lines is not None:
        routing |= Admission(arm.lines, arm.search).as_core(played)
    if arm.per_worker:
        routing["max_worker_requests"] = arm.per_worker
    return _engine.simulate(played.as_core(), routing, fleet.as_core(trace))


def whole_of(trace: Trace, result: Result, window: Window) -> Share:
    """The figures of all requests together."""
    return share_of(trace, result, np.ones(len(trace), bool), window)


def middle_rate(result: Result) -> float:
    """Requests a second that end, without the tenths at begin and end."""
    ends = np.sort(np.asarray(result["arrival_s"]) + np.asarray(result["e2e_s"]))
    ends = ends[np.isfinite(ends)]
    first, last = ends[len(ends) // 10], ends[len(ends) * 9 // 10]
    return 0.8 * len(ends) / max(1e-9, float(last - first))


def dice_of(seed: int, part: int) -> np.random.Generator:
    """Random numbers of a part of the traffic."""
    return np.random.default_rng([seed, 0xC1A5, part])


# ---- classes


@dataclasses.dataclass
class ClassCell:
    """One seed: figures by traffic and arm."""

    alone: Share
    batch_alone: float
    """Requests a second of a backlog with classes."""
    batch_full: float
    """The same with FULL_PER_WORKER always open at the engines."""
    interactive: dict[tuple[Any, str], Share]
    batch: dict[tuple[Any, str], Share]
    whole: dict[tuple[Any, str], Share]


def class_cell(fleet: Fleet, seed: int, sessions: int, arms: Sequence[Arm] = CLASS_ARMS) -> ClassCell:
    """All traffics of one seed."""
    chats = generate("chat", seed, sessions)
    rate = INTERACTIVE_LOAD * capacity(chats, fleet, seed=seed, policies=[POLICY]).rate
    people = of_class(chats.at_rate(rate), INTERACTIVE)
    window = Window(WARM_SHARE * people.span_s, people.span_s)
    backlog = batch_requests(dice_of(seed, 0), BACKLOG_PER_WORKER * fleet.workers, None)
    full = play_full(backlog, fleet, seed)
    cell = ClassCell(
        alone=share_of(people, play(people, DIRECT, fleet, seed), np.ones(len(people), bool), window),
        batch_alone=middle_rate(play(backlog, CLASSES, fleet, seed)),
        batch_full=full,
        interactive={},
        batch={},
        whole={},
    )
    for load in (*LOADS, FLOODED):
        if load == FLOODED:
            job = batch_requests(dice_of(seed, 1), int(1.2 * full * people.span_s) + fleet.workers, None)
        else:
            batch_rate = (float(load) - INTERACTIVE_LOAD) * full
            job = batch_requests(dice_of(seed, 2), max(1, int(batch_rate * people.span_s)), batch_rate)
        trace = merged("classes", [people, job])
        for arm in arms:
            result = play(trace, arm, fleet, seed)
            classes, _ = shares_of(trace, result, window)
            cell.interactive[load, arm.name] = classes["interactive"]
            cell.batch[load, arm.name] = classes["batch"]
            cell.whole[load, arm.name] = whole_of(trace, result, window)
    return cell


def play_full(backlog: Trace, fleet: Fleet, seed: int) -> float:
    """Requests a second of the engines, which always have FULL_PER_WORKER each."""
    arrays = backlog.as_core() | {"closed_loop": FULL_PER_WORKER * fleet.workers}
    routing = fleet.routing() | POLICY.as_core(backlog.block_size, fleet.index_blocks(backlog), seed)
    return middle_rate(_engine.simulate(arrays, routing, fleet.as_core(backlog)))


# ---- tenants


@dataclasses.dataclass
class TenantCell:
    """One seed and number of documents: figures by arm."""

    alone: Share
    light: dict[str, Share]
    light_interactive: Share
    whole: dict[str, Share]
    flood_by_other: dict[str, float]
    unequal: float
    """Largest difference of a tenant's share from an equal one, in a minute; of the arm FAIR."""
    unequal_weighted: float
    """The same of shares over weights, where FAVOURED has the weight FAVOUR."""


def heavy_of(trace: Trace) -> list[int]:
    """Numbers of the tenants that have a backlog."""
    return [number for number, name in enumerate(trace.tenant_names) if name != LIGHT]


def backlog_window(trace: Trace, result: Result) -> Window:
    """From when the queues are filled until the first tenant has nothing left to send."""
    assert trace.tenants is not None
    arrival = np.asarray(result["arrival_s"])
    end = min(float(np.nanmax(arrival[trace.tenants == number])) for number in heavy_of(trace))
    return Window(WARM_SHARE * end, end)


def unequal(trace: Trace, result: Result, weights: dict[str, float]) -> float:
    """How far shares of cost over weights are from equal ones, at most, in minutes of the backlog."""
    assert trace.tenants is not None
    cost = trace.input_tokens - np.asarray(result["hit_tokens"]).astype(float) + 2.0 * trace.output_tokens
    ends = np.asarray(result["arrival_s"]) + np.asarray(result["e2e_s"])
    ends = np.where(np.isnan(ends), np.inf, ends)
    window = backlog_window(trace, result)
    most = 0.0
    begins = np.arange(
        window.begin_s, max(window.begin_s + 1e-9, window.end_s - SHARE_SECONDS), SHARE_SECONDS
    )
    for begin in begins:
        there = Window(float(begin), float(begin) + SHARE_SECONDS).holds(ends)
        shares = np.array(
            [
                cost[there & (trace.tenants == number)].sum() / weights.get(trace.tenant_names[number], 1.0)
                for number in heavy_of(trace)
            ]
        )
        if shares.sum() > 0:
            most = max(most, float(np.abs(shares / shares.mean() - 1).max()))
    return most


def tenant_cell(fleet: Fleet, seed: int, documents: int, requests: int, users: int) -> TenantCell:
    """All arms of one seed."""
    trace = tenants_workload(dice_of(seed, 3), requests, users, documents)
    assert trace.tenants is not None
    light = light_requests(dice_of(seed, 4), max(60.0, requests / 20))
    alone = play(light, DIRECT, fleet, seed)
    results = {arm.name: play(trace, arm, fleet, seed) for arm in TENANT_ARMS}
    is_light = trace.tenants == trace.tenant_names.index(LIGHT)
    classes = np.where(is_light, INTERACTIVE, trace.priority_classes).astype(np.uint8)
    first = dataclasses.replace(trace, priority_classes=classes)
    of_first = play(first, FAIR, fleet, seed)
    cell = TenantCell(
        alone=share_of(light, alone, np.ones(len(light), bool), Window()),
        light={},
        light_interactive=share_of(first, of_first, is_light, backlog_window(first, of_first)),
        whole={},
        flood_by_other={},
        unequal=unequal(trace, results[FAIR.name], {}),
        unequal_weighted=unequal(trace, play(trace, WEIGHTED, fleet, seed), {FAVOURED: FAVOUR}),
    )
    for name, result in results.items():
        window = backlog_window(trace, result)
        _, tenants = shares_of(trace, result, window)
        cell.light[name] = tenants[LIGHT]
        cell.whole[name] = whole_of(trace, result, window)
        others = [tenants[f"tenant-{number}"]["requests_per_s"] for number in range(1, TENANTS)]
        cell.flood_by_other[name] = tenants[FLOOD]["requests_per_s"] / max(1e-9, float(np.mean(others)))
    return cell


# ---- tables


def mean(values: Iterable[float]) -> float:
    """Of one number per seed."""
    return float(np.mean([*values]))


def mean_of(shares: Sequence[Share], figure: str) -> float:
    """Of one share per seed."""
    return mean(share[figure] for share in shares)


def seconds(value: float) -> str:
    """Two digits that count; a wait without end is named so."""
    return "none" if not np.isfinite(value) else f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def row_of(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def class_table(cells: Sequence[ClassCell]) -> str:
    """One row per arm, at the highest load and beside a backlog."""
    load = LOADS[-1]
    lines = [
        row_of(
            [
                "",
                "interactive TTFT p50, p99; TPOT",
                "batch/s",
                "all output tok/s",
                "hit",
                "flood: p99; batch/s",
            ]
        ),
        "|---|--:|--:|--:|--:|--:|",
    ]
    for arm in dict.fromkeys(name for _, name in cells[0].whole):
        people = [cell.interactive[load, arm] for cell in cells]
        job = [cell.batch[load, arm] for cell in cells]
        both = [cell.whole[load, arm] for cell in cells]
        flooded = [cell.interactive[FLOODED, arm] for cell in cells]
        flood = [cell.batch[FLOODED, arm] for cell in cells]
        lines.append(
            row_of(
                [
                    arm,
                    f"{seconds(mean_of(people, 'ttft_p50_s'))}, {seconds(mean_of(people, 'ttft_p99_s'))}; "
                    f"{mean_of(people, 'token_ms'):.0f} ms",
                    f"{mean_of(job, 'requests_per_s'):.2f}",
                    f"{mean_of(both, 'tokens_per_s'):,.0f}",
                    f"{mean_of(both, 'hit_share'):.2f}",
                    f"{seconds(mean_of(flooded, 'ttft_p99_s'))}; {mean_of(flood, 'requests_per_s'):.2f}",
                ]
            )
        )
    alone = [cell.alone for cell in cells]
    lines.append(
        f"\ninteractive alone: p50 {seconds(mean_of(alone, 'ttft_p50_s'))}, "
        f"p99 {seconds(mean_of(alone, 'ttft_p99_s'))}, TPOT {mean_of(alone, 'token_ms'):.0f} ms"
    )
    return "\n".join(lines)


def tenant_table(cells: dict[int, list[TenantCell]]) -> str:
    """One row per arm, each figure for every number of documents."""
    lines = [row_of(["order", "light p50, p99", "req/s", "hit", "flood : other"]), "|---|--:|--:|--:|--:|"]

    def by_documents(show: Callable[[list[TenantCell]], str]) -> str:
        return " / ".join(show(of_documents) for of_documents in cells.values())

    for arm in TENANT_ARMS:
        name = arm.name
        lines.append(
            row_of(
                [
                    name,
                    by_documents(
                        lambda seeds, name=name: (
                            f"{seconds(mean(c.light[name]['ttft_p50_s'] for c in seeds))}, "
                            f"{seconds(mean(c.light[name]['ttft_p99_s'] for c in seeds))}"
                        )
                    ),
                    by_documents(
                        lambda seeds, name=name: f"{mean(c.whole[name]['requests_per_s'] for c in seeds):.1f}"
                    ),
                    by_documents(
                        lambda seeds, name=name: f"{mean(c.whole[name]['hit_share'] for c in seeds):.2f}"
                    ),
                    by_documents(
                        lambda seeds, name=name: f"{mean(c.flood_by_other[name] for c in seeds):.1f}"
                    ),
                ]
            )
        )
    alone = mean(cell.alone["ttft_p99_s"] for seeds in cells.values() for cell in seeds)
    lines.append(
        f"\nlight alone: p99 {seconds(alone)}; documents of each tenant: {', '.join(map(str, cells))}"
    )
    return "\n".join(lines)


# ---- bars


@dataclasses.dataclass(frozen=True)
class Bar:
    """A figure, and the limit that it must keep."""

    name: str
    value: float
    limit: float
    at_most: bool = False

    @property
    def is_kept(self) -> bool:
        """NaN keeps no bar."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        word = "kept  " if self.is_kept else "MISSED"
        return f"{word} {self.name}: {self.value:.3g} (bar {sign} {self.limit:g})"


def class_bars(cells: Sequence[ClassCell]) -> list[Bar]:
    """Bars 1 to 3."""
    ours, fifo, top = CLASSES.name, FIFO.name, LOADS[-1]

    def slower(load: Any) -> float:
        return mean(cell.interactive[load, ours]["ttft_p99_s"] / cell.alone["ttft_p99_s"] for cell in cells)

    def by_fifo(load: Any, figures: str, name: str) -> float:
        return mean(
            getattr(cell, figures)[load, ours][name] / max(1e-9, getattr(cell, figures)[load, fifo][name])
            for cell in cells
        )

    return [
        Bar(f"1 interactive p99 beside batch at {top}, by alone", slower(top), 4, at_most=True),
        Bar("1 interactive p99 beside a flood, by alone", slower(FLOODED), 4, at_most=True),
        Bar(f"2 all output tokens at {top}, by FIFO", by_fifo(top, "whole", "tokens_per_s"), 1),
        Bar("2 batch/s at 0.89, by FIFO", by_fifo(LOADS[0], "batch", "requests_per_s"), 0.94),
        Bar("2 batch/s at 0.98, by FIFO", by_fifo(top, "batch", "requests_per_s"), 0.87),
        Bar(
            f"3 batch alone, by {FULL_PER_WORKER} a worker",
            mean(cell.batch_alone / cell.batch_full for cell in cells),
            0.98,
        ),
    ]


def tenant_bars(cells: dict[int, list[TenantCell]]) -> list[Bar]:
    """Bars 4 to 6; the worst number of documents counts."""

    def worst(value: Callable[[TenantCell], float], pick: Callable[[list[float]], float]) -> float:
        return pick([mean(value(cell) for cell in seeds) for seeds in cells.values()])

    def hits(arm: Arm) -> Callable[[TenantCell], float]:
        return lambda cell: cell.whole[FAIR.name]["hit_share"] - cell.whole[arm.name]["hit_share"]

    def light(cell: TenantCell) -> float:
        return cell.light[FAIR.name]["ttft_p99_s"] / cell.alone["ttft_p99_s"]

    def first(cell: TenantCell) -> float:
        return cell.light_interactive["ttft_p99_s"] / cell.alone["ttft_p99_s"]

    return [
        Bar("4 light tenant's p99, by alone", worst(light, max), 7, at_most=True),
        Bar("4 the same as `interactive`", worst(first, max), 4, at_most=True),
        Bar("5 hit share, less that to the engines", worst(hits(DIRECT), min), -0.05),
        Bar("5 hit share, less that of FIFO", worst(hits(FIFO), min), 0),
        Bar("6 shares 1:1 in a minute, off by", worst(lambda cell: cell.unequal, max), 0.05, at_most=True),
        Bar(
            "6 shares 4:1 in a minute, off by",
            worst(lambda cell: cell.unequal_weighted, max),
            0.05,
            at_most=True,
        ),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables, and which bars are kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--parts", nargs="+", choices=("classes", "tenants"), default=["classes", "tenants"])
    add("--workers", type=int, default=8)
    add("--cache-tokens", type=int, default=160_000, help="of a worker")
    add("--seeds", type=int, default=3)
    add("--sessions", type=int, default=2400, help="conversations of `classes`")
    add("--requests", type=int, default=TENANT_REQUESTS, help="of `tenants`")
    add("--users", type=int, default=TENANT_USERS, help="requests that a tenant has open")
    add("--documents", nargs="+", type=int, default=list(DOCUMENTS), help="of a tenant")
    options = parser.parse_args(argv)
    fleet = Fleet(workers=options.workers, cache_tokens=options.cache_tokens)
    seeds: NDArray[np.int64] = np.arange(1, options.seeds + 1)
    bars: list[Bar] = []
    if "classes" in options.parts:
        class_cells = [class_cell(fleet, int(seed), options.sessions) for seed in seeds]
        print(f"\nclasses, means of {options.seeds} seeds\n\n{class_table(class_cells)}")
        bars += class_bars(class_cells)
    if "tenants" in options.parts:
        tenant_cells = {
            documents: [
                tenant_cell(fleet, int(seed), documents, options.requests, options.users) for seed in seeds
            ]
            for documents in options.documents
        }
        print(f"\ntenants, means of {options.seeds} seeds\n\n{tenant_table(tenant_cells)}")
        bars += tenant_bars(tenant_cells)
    print("\n" + "\n".join(map(str, bars)))
    return 0 if all(bar.is_kept for bar in bars) else 1


if __name__ == "__main__":
    raise SystemExit(main())
