"""run(): every policy on the same traffic and the same fleet, as rows for a table or a DataFrame."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from vllm_router.replay import _engine
from vllm_router.replay.admission import REJECTED, Admission, columns_of
from vllm_router.replay.capacity import Capacity, Prober, capacity, percentile
from vllm_router.replay.fleet import Fleet
from vllm_router.replay.holdout import Holdout
from vllm_router.replay.policies import PolicySpec, parse_policies
from vllm_router.replay.programs import Programs
from vllm_router.replay.trace import Trace, TraceError

Row = dict[str, Any]

FINISHED, REFUSED, CUT_SHORT = 0, 1, 2

# A fleet cannot keep up when so many requests still wait for a first token as the last one arrives.
SATURATED_SHARE = 0.02
SATURATED_PER_WORKER = 8

MAX_SEEDS = 1000


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far run() is; passed to `on_progress` after each simulation."""

    done: int
    total: int
    """Simulations as far as is known: how many a capacity takes shows only at its end."""
    requests: int
    """Simulated so far."""
    doing: str


def run(
    trace: Trace | Callable[[int], Trace],
    policies: Iterable[str | PolicySpec] = ("all",),
    fleet: Fleet | Sequence[Fleet] | None = None,
    *,
    load: float | Sequence[float] | None = None,
    rate: float | Sequence[float] | None = None,
    speed: float = 1.0,
    poisson: bool = False,
    seeds: int | Sequence[int] = 1,
    slo_s: float | None = None,
    goodput: bool = False,
    holdout: Holdout | None = None,
    admission: Admission | None = None,
    programs: Programs | None = None,
    jobs: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[Row]:
    """Play a trace to a simulated fleet once for each policy, load and seed.

    Args:
        trace: The traffic, or a function that makes it from a seed.
        policies: As on the command line: `"cache_aware:cache_threshold=0.3|0.5"`, `"all"`.
        fleet: The workers; several are a sweep.
        load: Fractions of the capacity, which is measured first (`capacity.py`).
        rate: Requests a second instead.
        speed: Without either: how many times as fast as recorded; it divides the pauses of a closed loop.
        poisson: Arrivals at random at that rate; otherwise as recorded, stretched to it.
        seeds: How many (1, 2, ...), or which.
        slo_s: The SLO of the capacity and of `goodput`; None derives it.
        goodput: Also measure each policy's own highest rate within the SLO, as a fraction of the capacity.
        holdout: Hold some conversations out of each policy, and estimate what that changes.
        admission: Priority classes and weights of tenants of the router; None: it knows none, and no request
            waits there. A capacity is measured without them.
        programs: How sessions are admitted as programs; None: they are not. Not with admission.
        jobs: Simulations at a time; None is one per processor, at most 4.
        on_progress: Called after each simulation, from any thread.

    Returns:
        One dict of numbers and texts per run, ordered by fleet, load, policy, seed; `pandas.DataFrame(rows)`
        is the table. docs/reference/replay.md lists the columns. Equal arguments give equal rows.

    Raises:
        TraceError: one of the arguments does not fit; one sentence says why. It is a ValueError.
    """
    if not isinstance(trace, Trace) and not callable(trace):
        raise TypeError(
            f"trace is of type {type(trace).__name__}; it must be a Trace, which read_trace(path) and "
            "generate(name) return, or a function that makes one from a seed"
        )
    specs = _specs(policies)
    fleets = _fleets(fleet)
    seed_list = _seeds(seeds)
    _numbers("speed", speed)
    _numbers("slo_s", slo_s)
    loads, rates = _numbers("load", load), _numbers("rate", rate)
    if loads and rates:
        raise TraceError("load and rate are both given, and both set the amount of traffic; keep one of them")
    if (loads or rates) and speed != 1:
        raise TraceError(
            "speed is given with load or rate, which replace the recorded times that it scales; leave it out"
        )
    for spec in specs:
        spec.check_stages(staged=[one.is_staged for one in fleets])
    if holdout is not None:
        holdout.check_stages(staged=any(one.is_staged for one in fleets))
    if admission is not None:
        admission.check_stages(staged=any(one.is_staged for one in fleets))
    if programs is not None:
        programs.check_stages(staged=any(one.is_staged for one in fleets))
    waits = (admission, programs)
    plan = _Plan(
        trace, specs, fleets, loads, rates, speed, poisson, seed_list, slo_s, goodput, holdout, *waits
    )
    return plan.carry_out(_jobs(jobs), on_progress)


def _specs(policies: Iterable[str | PolicySpec]) -> list[PolicySpec]:
    given = [policies] if isinstance(policies, (str, PolicySpec)) else list(policies)
    specs: dict[str, PolicySpec] = {}
    for policy in given:
        for spec in [policy] if isinstance(policy, PolicySpec) else parse_policies([policy]):
            specs.setdefault(spec.label, spec)
    if not specs:
        raise TraceError("no policy is named; name one, or all")
    return list(specs.values())


def _fleets(fleet: Fleet | Sequence[Fleet] | None) -> list[Fleet]:
    if isinstance(fleet, int):
        raise TypeError(
            f"fleet is of type int; it must be a Fleet or several, such as Fleet(workers={fleet})"
        )
    fleets = [Fleet()] if fleet is None else [fleet] if isinstance(fleet, Fleet) else list(fleet)
    if not fleets:
        raise TraceError("no fleet is given; leave fleet out for 8 workers")
    return fleets


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        if not 1 <= seeds <= MAX_SEEDS:
            raise TraceError(f"seeds is {seeds}; it must be a whole number from 1 to {MAX_SEEDS}")
        return list(range(1, seeds + 1))
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise TraceError(f"seeds are {list(seeds)}; they must be different whole numbers, 0 or more")
    return list(seeds)


def _numbers(name: str, given: float | Sequence[float] | None) -> list[float]:
    if given is None:
        return []
    numbers = [float(given)] if isinstance(given, (int, float)) else [float(number) for number in given]
    for number in numbers:
        if not (math.isfinite(number) and number > 0):
            raise TraceError(f"{name} is {number:g}; it must be above 0")
    return numbers


def _jobs(jobs: int | None) -> int:
    if jobs is None:
        return min(4, os.cpu_count() or 1)
    if jobs < 1:
        raise TraceError(f"jobs is {jobs}; it must be 1 or more")
    return jobs


@dataclasses.dataclass(frozen=True)
class _Cell:
    """Runs that share their traffic: one fleet, one seed."""

    trace: Trace
    fleet: Fleet
    seed: int
    capacity: Capacity | None


@dataclasses.dataclass
class _Plan:
    trace: Trace | Callable[[int], Trace]
    specs: list[PolicySpec]
    fleets: list[Fleet]
    loads: list[float]
    rates: list[float]
    speed: float
    poisson: bool
    seeds: list[int]
    slo_s: float | None
    goodput: bool
    holdout: Holdout | None
    admission: Admission | None
    programs: Programs | None
    _done: int = 0
    _requests: int = 0
    _length: int = 0

    def carry_out(self, jobs: int, on_progress: Callable[[Progress], None] | None) -> list[Row]:
        traces = {seed: self.trace(seed) if callable(self.trace) else self.trace for seed in self.seeds}
        for trace in traces.values():
            if len(trace) == 0:
                raise TraceError(f"trace {trace.name} has no requests; a replay needs at least one")
            if trace.is_closed_loop and (self.loads or self.rates or self.poisson or self.goodput):
                raise TraceError(
                    f"trace {trace.name} is a closed loop, whose requests arrive as responses end, so load, "
                    "rate, poisson and goodput do not apply; set speed, or the number of agents"
                )
            trace.prepare()
        needs_capacity = bool(self.loads) or self.goodput
        points: list[float | None] = [*(self.loads or self.rates)] or [None]
        total = len(self.fleets) * len(points) * len(self.specs) * len(self.seeds)

        def tell(doing: str, requests: int, expected: int) -> None:
            self._done += 1
            self._requests += requests
            if on_progress is not None:
                on_progress(Progress(self._done, max(expected, self._done), self._requests, doing))

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            try:
                cells = list(
                    pool.map(
                        lambda pair: self._cell(
                            traces[pair[1]], pair[0], pair[1], needs_capacity, total, tell
                        ),
                        [(fleet, seed) for fleet in self.fleets for seed in self.seeds],
                    )
                )
                total += self._done
                work = [
                    (cell, number * len(points) + place, point, spec)
                    for number in range(len(self.fleets))
                    for place, point in enumerate(points)
                    for spec in self.specs
                    for cell in cells[number * len(self.seeds) : (number + 1) * len(self.seeds)]
                ]
                return list(pool.map(lambda item: self._row(item, total, tell), work))
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _cell(
        self,
        trace: Trace,
        fleet: Fleet,
        seed: int,
        needs_capacity: bool,
        total: int,
        tell: Callable[[str, int, int], None],
    ) -> _Cell:
        found = None
        if needs_capacity:
            found = capacity(
                trace,
                fleet,
                seed=seed,
                slo_s=self.slo_s,
                tick=lambda: tell(f"capacity of {fleet.workers} workers", len(trace), total),
            )
        return _Cell(trace, fleet, seed, found)

    def _row(
        self,
        work: tuple[_Cell, int, float | None, PolicySpec],
        total: int,
        tell: Callable[[str, int, int], None],
    ) -> Row:
        cell, number, point, spec = work
        rate = cell.trace.rate * self.speed
        if point is not None:
            rate = point * cell.capacity.rate if self.loads and cell.capacity else point
        trace = cell.trace.poisson(rate, cell.seed) if self.poisson else cell.trace.at_rate(rate)
        row: Row = {
            "trace": trace.name,
            "policy": spec.label,
            "comparison": spec.comparison,
            "point": number,
            "by_load": bool(self.loads),
            "seed": cell.seed,
            "workers": cell.fleet.workers,
            "prefill": cell.fleet.prefill,
            "decode": cell.fleet.decode,
            "routers": cell.fleet.routers,
            "cache_tokens": cell.fleet.cache_blocks(trace) * trace.block_size,
            "load": point if self.loads else rate / cell.capacity.rate if cell.capacity else None,
            "rate": rate,
        }
        row |= measure(trace, spec, cell.fleet, cell.seed, self.holdout, self.admission, self.programs)
        if trace.is_closed_loop:
            row["rate"] = len(trace) / max(1e-9, row["span_s"])
        row["ideal_hit_share"] = cell.trace.ideal_hit_share
        if cell.capacity is not None:
            row["capacity"] = cell.capacity.rate
            row["slo_s"] = cell.capacity.slo_s
            row["within_slo"] = row["ttft_p90_s"] <= cell.capacity.slo_s
            if self.goodput:
                prober = Prober(cell.trace, cell.fleet, cell.seed)
                own = prober.goodput(spec, cell.capacity.slo_s, cell.capacity.rate)
                row["goodput"] = own / cell.capacity.rate
        tell(spec.label, len(trace), total)
        return row


def measure(
    trace: Trace,
    spec: PolicySpec,
    fleet: Fleet,
    seed: int,
    holdout: Holdout | None = None,
    admission: Admission | None = None,
    programs: Programs | None = None,
) -> Row:
    """One run: what came of it, as numbers."""
    routing = fleet.routing() | spec.as_core(trace.block_size, fleet.index_blocks(trace), seed)
    if holdout is not None:
        routing |= holdout.as_core()
    if admission is not None:
        routing |= admission.as_core(trace)
    if programs is not None:
        routing |= programs.as_core()
    result = _engine.simulate(trace.as_core(), routing, fleet.as_core(trace))
    row = summary(trace, result)
    if holdout is not None:
        row |= holdout.estimate(trace, result)
    row |= columns_of(trace, result)
    return row | (_of_stages(trace, fleet, result) if fleet.is_staged else {})


def _of_stages(trace: Trace, fleet: Fleet, result: dict[str, Any]) -> Row:
    """What only a fleet with two stages has."""
    served = np.asarray(result["worker"]) >= 0
    alone = served & (np.asarray(result["prefill_worker"]) < 0)
    moved = int(np.asarray(result["fetched_tokens"], np.int64).sum())
    busy = np.asarray(result["workers"]["busy_s"], np.float64) / max(1e-9, float(result["span_s"]))
    return {
        "bypass_share": float(alone.sum() / max(1, served.sum())),
        "transferred_bytes": moved * float(fleet.kv_bytes_per_token),
        "transferred_share": moved / max(1, int(trace.input_tokens.astype(np.int64).sum())),
        "prefill_busy": float(busy[: fleet.prefill].mean()),
        "decode_busy": float(busy[fleet.prefill :].mean()),
    }


def summary(trace: Trace, result: dict[str, Any]) -> Row:
    """The numbers of one run."""
    status = np.asarray(result["status"])
    ttft, e2e = np.asarray(result["ttft_s"]), np.asarray(result["e2e_s"])
    finished = status == FINISHED
    inputs = trace.input_tokens.astype(np.int64)
    outputs = trace.output_tokens.astype(np.int64)
    # Who got no token waits for ever: a policy must not look better for losing requests.
    waits = np.where(np.isnan(ttft), np.inf, ttft)
    arrival = np.asarray(result["arrival_s"])
    waiting = int(np.count_nonzero(arrival + waits > arrival.max()))
    workers = {name: np.asarray(values, np.float64) for name, values in result["workers"].items()}
    several = finished & (outputs > 1)
    pace = (e2e[several] - ttft[several]) / (outputs[several] - 1)
    served = workers["requests"]
    span = float(result["span_s"])
    return {
        "requests": len(trace),
        "finished": int(np.count_nonzero(finished)),
        "refused": int(np.count_nonzero(status == REFUSED)),
        "cut_short": int(np.count_nonzero(status == CUT_SHORT)),
        "rejected": int(np.count_nonzero(np.isin(status, list(REJECTED.values())))),
        "hit_share": float(np.asarray(result["hit_tokens"])[finished].sum() / max(1, inputs[finished].sum())),
        "predicted_hit_share": float(
            np.asarray(result["predicted_tokens"])[finished].sum() / max(1, inputs[finished].sum())
        ),
        "ttft_mean_s": float(waits.mean()),
        **{f"ttft_{name}_s": percentile(waits, share) for name, share in PERCENTILES.items()},
        "e2e_mean_s": float(e2e[finished].mean()) if finished.any() else math.inf,
        **{f"e2e_{name}_s": percentile(e2e[finished], share) for name, share in PERCENTILES.items()},
        "token_ms": float(pace.mean() * 1000) if several.any() else float("nan"),
        **{f"token_{name}_ms": 1000 * percentile(pace, PERCENTILES[name]) for name in ("p50", "p99")},
        # Open requests over the workers: standard deviation by mean, at arrivals.
        "load_imbalance": float(result["load_spread"]),
        "busiest_share": float(served.max() / max(1.0, served.sum())),
        "busy": float(workers["busy_s"].sum() / max(1e-9, span * len(served))),
        "evicted_blocks": int(workers["evicted_blocks"].sum()),
        "output_tokens_per_s": float(outputs[finished].sum() / max(1e-9, span)),
        "span_s": span,
        "waiting_at_end": waiting,
        "saturated": waiting > max(SATURATED_SHARE * len(trace), SATURATED_PER_WORKER * len(served)),
    }


PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
