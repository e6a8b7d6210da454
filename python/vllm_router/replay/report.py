"""Reports of a replay: a table for the terminal, JSON for programs, and what to recommend."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vllm_router.replay.admission import groups_of
from vllm_router.replay.policies import PolicySpec, flags_of_policy
from vllm_router.replay.runner import Row
from vllm_router.settings.policies import DEFAULT_POLICY

# Two-sided 95 % of Student's t by degrees of freedom; above ten the normal distribution's is near enough.
_T_95 = (math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
_NORMAL_95 = 1.96

# Two policies whose p90 differ by less are as good as each other.
CLOSE = 0.02
# Policies are compared by p90: so that it does not depend on a few, ten requests must be slower.
ENOUGH_REQUESTS = 100


@dataclasses.dataclass(frozen=True)
class Value:
    """A mean over seeds, and half of its 95 % confidence interval: NaN for one seed."""

    mean: float
    half: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Value:
        """Of one number per seed."""
        count = len(numbers)
        mean = sum(numbers) / count if count else math.nan
        if count < 2 or not math.isfinite(mean):
            return cls(mean, math.nan)
        spread = math.sqrt(sum((number - mean) ** 2 for number in numbers) / (count - 1))
        factor = _T_95[count - 1] if count <= len(_T_95) else _NORMAL_95
        return cls(mean, factor * spread / math.sqrt(count))


@dataclasses.dataclass(frozen=True)
class Summary:
    """One policy at one point, over its seeds."""

    policy: str
    comparison: bool
    rows: Sequence[Row]

    def value(self, column: str) -> Value:
        """A column over the seeds; without numbers NaN."""
        return Value.of([float(row[column]) for row in self.rows if row.get(column) is not None])

    @property
    def saturated(self) -> bool:
        """Whether it could not keep up under any seed."""
        return any(row["saturated"] for row in self.rows)


@dataclasses.dataclass(frozen=True)
class Point:
    """One fleet under one traffic: what the policies are compared in."""

    trace: str
    workers: int
    prefill: int
    decode: int
    routers: int
    cache_tokens: int
    load: float | None
    summaries: Sequence[Summary]

    @property
    def title(self) -> str:
        """What was played to what."""
        first = self.summaries[0]
        rate = first.value("rate").mean
        words = [
            f"{self.trace}: {first.rows[0]['requests']:,} requests",
            f"{rate:.3g}/s" + (f" (load {self.load:.2f})" if self.load is not None else ""),
            f"{self._fleet} workers with {self.cache_tokens / 1000:,.0f}k tokens of cache each",
        ]
        if self.routers > 1:
            words.append(f"{self.routers} routers")
        if len(first.rows) > 1:
            words.append(f"{len(first.rows)} seeds")
        return ", ".join(words)

    @property
    def _fleet(self) -> str:
        return f"{self.prefill} prefill and {self.decode} decode" if self.prefill else str(self.workers)

    def best(self, column: Column) -> set[str]:
        """The policies that are best in a column; none where all are alike."""
        if column.better is None:
            return set()
        values = {summary.policy: summary.value(column.name).mean for summary in self.summaries}
        shown = {policy: column.show(value) for policy, value in values.items() if not math.isnan(value)}
        finite = [value for value in values.values() if math.isfinite(value)]
        if len(set(shown.values())) < 2 or not finite:
            return set()
        best = column.show(column.better(finite))
        return {policy for policy, text in shown.items() if text == best}


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the table."""

    name: str
    title: str
    show: Callable[[float], str]
    better: Callable[[Any], float] | None = None


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if math.isfinite(value) else "–"


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def _terabytes(value: float) -> str:
    return f"{value / 1e12:.3g}" if math.isfinite(value) else "–"


def _plain(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "–"


COLUMNS = (
    Column("hit_share", "hit", _percent, max),
    Column("ttft_p50_s", "TTFT p50", _seconds, min),
    Column("ttft_p90_s", "p90", _seconds, min),
    Column("ttft_p99_s", "p99", _seconds, min),
    Column("e2e_p50_s", "end p50", _seconds, min),
    Column("e2e_p90_s", "p90", _seconds, min),
    Column("load_imbalance", "uneven", _plain, min),
    Column("busy", "busy", _percent),
)

# From so many columns of text on the whole table is shown.
WIDE = 110
_NARROW_LEAVES_OUT = ("e2e_p50_s", "e2e_p90_s", "busy")

# Of a fleet with stages, whose workers do not all do the same.
_STAGES_LEAVE_OUT = ("e2e_p50_s", "e2e_p90_s", "load_imbalance")
STAGE_COLUMNS = (
    Column("token_p50_ms", "TPOT p50 ms", _seconds, min),
    Column("token_p99_ms", "p99", _seconds, min),
    Column("bypass_share", "bypass", _percent),
    Column("transferred_bytes", "moved TB", _terabytes, min),
)

GOODPUT = Column("goodput", "goodput", _plain, max)


def points_of(rows: Sequence[Row]) -> list[Point]:
    """Rows of run() by fleet and traffic, each with its policies in their order."""
    grouped: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for row in rows:
        policies = grouped.setdefault((row["trace"], row["point"]), {})
        policies.setdefault(row["policy"], []).append(row)
    points = []
    for policies in grouped.values():
        summaries = [
            Summary(policy, bool(of_policy[0]["comparison"]), of_policy)
            for policy, of_policy in policies.items()
        ]
        first = summaries[0].rows[0]
        points.append(
            Point(
                trace=first["trace"],
                workers=first["workers"],
                prefill=first.get("prefill", 0),
                decode=first.get("decode", 0),
                routers=first["routers"],
                cache_tokens=first["cache_tokens"],
                load=first["load"] if first["by_load"] else None,
                summaries=summaries,
            )
        )
    return points


def columns_of(point: Point) -> list[Column]:
    """The columns that this point has numbers for."""
    rows = [row for summary in point.summaries for row in summary.rows]
    usual, more = list(COLUMNS), [GOODPUT]
    if point.prefill:
        usual = [column for column in COLUMNS if column.name not in _STAGES_LEAVE_OUT]
        more = [*STAGE_COLUMNS, GOODPUT]
    return [*usual, *(column for column in more if any(column.name in row for row in rows))]


def table_of(point: Point, width: int = WIDE) -> RenderableType:
    """The table of one point, times in seconds, the best of each column in green with a star.

    A terminal that is narrow gets the columns that matter most.
    """
    table = Table(box=box.SIMPLE_HEAD, title=point.title, title_justify="left", pad_edge=False)
    table.add_column("policy", overflow="fold", min_width=16)
    columns = [
        column for column in columns_of(point) if width >= WIDE or column.name not in _NARROW_LEAVES_OUT
    ]
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    best = {column.name: point.best(column) for column in columns}
    several = len(point.summaries[0].rows) > 1
    for summary in point.summaries:
        cells: list[Text | str] = [Text(summary.policy, style="dim" if summary.comparison else "")]
        for column in columns:
            value = summary.value(column.name)
            winner = summary.policy in best[column.name]
            text = column.show(value.mean) + ("*" if winner else " ")
            if several and column.name in ("hit_share", "ttft_p90_s", "goodput"):
                text += _half(column, value)
            cells.append(Text(text, style="bold green" if winner else ""))
        cells.append(Text("saturated" if summary.saturated else "", style="red"))
        table.add_row(*cells)
    return Group(table, Text(_below(point), style="dim"))


SHARE_COLUMNS = (
    Column("requests", "requests", lambda value: f"{value:,.0f}"),
    Column("rejected", "rejected", lambda value: f"{value:,.0f}"),
    Column("hit_share", "hit", _percent),
    Column("ttft_p50_s", "TTFT p50", _seconds),
    Column("ttft_p99_s", "p99", _seconds),
    Column("token_ms", "TPOT ms", _seconds),
    Column("requests_per_s", "requests/s", _plain),
    Column("tokens_per_s", "tokens/s", lambda value: f"{value:,.0f}"),
    Column("wait_p99_s", "wait p99", _seconds),
)


def shares_table(point: Point) -> RenderableType | None:
    """What each class and tenant got at one point, means over the seeds; None where there are none."""
    if not any(groups_of(summary.rows[0]) for summary in point.summaries):
        return None
    table = Table(box=box.SIMPLE_HEAD, title="Classes and tenants", title_justify="left", pad_edge=False)
    table.add_column("policy", overflow="fold", min_width=16)
    table.add_column("who", overflow="fold")
    for column in SHARE_COLUMNS:
        table.add_column(column.title, justify="right", no_wrap=True)
    for summary in point.summaries:
        for group in groups_of(summary.rows[0]):
            values = [column.show(summary.value(f"{group}_{column.name}").mean) for column in SHARE_COLUMNS]
            table.add_row(Text(summary.policy), Text(group.replace("_", " ", 1)), *values)
    return table


def _half(column: Column, value: Value) -> str:
    if not math.isfinite(value.half):
        return ""
    half = 100 * value.half if column.show is _percent else value.half
    return f" ±{half:.1f}" if half >= 0.95 else f" ±{half:.2f}"


def _below(point: Point) -> str:
    first = point.summaries[0]
    lines = [
        f"Times in seconds. One unlimited cache would hit {_percent(first.value('ideal_hit_share').mean)}."
    ]
    if first.rows[0].get("capacity") is not None:
        lines.append(
            f"Capacity {first.value('capacity').mean:.3g} requests a second, "
            f"with p90 TTFT within {_seconds(first.value('slo_s').mean)} s."
        )
    lost = sum(
        row["refused"] + row["cut_short"] + row.get("rejected", 0)
        for summary in point.summaries
        for row in summary.rows
    )
    if lost:
        lines.append(
            f"{lost:,} requests were rejected or aborted; those without a token count as an infinite wait."
        )
    return " ".join(lines)


def as_json(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """Everything that was measured. Numbers that are not finite are null, as JSON wants it."""
    points = [
        {
            "title": point.title,
            "policies": {
                summary.policy: {
                    column.name: {
                        "mean": _finite(summary.value(column.name).mean),
                        "half_of_95_percent": _finite(summary.value(column.name).half),
                        "best": summary.policy in point.best(column),
                    }
                    for column in columns_of(point)
                }
                for summary in point.summaries
            },
        }
        for point in points_of(rows)
    ]
    clean = [{name: _finite(value) for name, value in row.items()} for row in rows]
    return json.dumps({"about": about, "points": points, "rows": clean}, indent=1)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass(frozen=True)
class Advice:
    """What to use, and why."""

    policy: PolicySpec | None
    flags: str
    why: Sequence[str]


def recommend(rows: Sequence[Row], specs: Sequence[PolicySpec]) -> Advice:
    """The router's own policy with the lowest p90 time to first token.

    Over several points it is the one whose p90, divided by the point's best, has the lowest geometric mean.
    Of those within 2 % of it the one with the highest hit share is taken. Comparison policies are never
    recommended: the server does not have them. Nothing is recommended from fewer than 100 requests.
    """
    own = [spec for spec in specs if not spec.comparison]
    if not own:
        return Advice(None, "", ["Only comparison policies were compared, which the server does not have."])
    points = points_of(rows)
    fewest = min(row["requests"] for row in rows)
    if fewest < ENOUGH_REQUESTS:
        return Advice(
            None,
            "",
            [
                f"{fewest} requests are too short to tell: policies are compared by the slowest tenth of "
                f"first tokens, so a recommendation needs {ENOUGH_REQUESTS} requests; record longer, or "
                "generate a trace (--workload)."
            ],
        )
    score = {spec.label: _score(points, spec.label, [other.label for other in own]) for spec in own}
    lowest = min(score.values())
    close = [spec for spec in own if score[spec.label] <= lowest * (1 + CLOSE)] or own
    chosen = max(close, key=lambda spec: _mean(points, spec.label, "hit_share"))
    why = [
        f"p90 time to first token {_seconds(_mean(points, chosen.label, 'ttft_p90_s'))} s, "
        f"hit share {_percent(_mean(points, chosen.label, 'hit_share'))} of an ideal "
        f"{_percent(_mean(points, chosen.label, 'ideal_hit_share'))}."
    ]
    others = sorted(
        (spec for spec in own if spec is not chosen),
        key=lambda spec: (score[spec.label], -_mean(points, spec.label, "hit_share")),
    )
    if others:
        next_one = others[0]
        why.append(
            f"The next, {next_one.label}: {_seconds(_mean(points, next_one.label, 'ttft_p90_s'))} s, "
            f"hit share {_percent(_mean(points, next_one.label, 'hit_share'))}."
        )
        if next_one in close and math.isfinite(lowest):
            why.append(f"Their times are within {CLOSE:.0%} of each other; the higher hit share decided.")
    default = next((spec for spec in others[1:] if spec.label == DEFAULT_POLICY), None)
    if default:
        why.append(
            f"The default, {default.label}: {_seconds(_mean(points, default.label, 'ttft_p90_s'))} s, "
            f"hit share {_percent(_mean(points, default.label, 'hit_share'))}."
        )
    if any(
        summary.saturated for point in points for summary in point.summaries if summary.policy == chosen.label
    ):
        why.append("The fleet cannot keep up with any policy: add workers, or replay with less load.")
    return Advice(chosen, flags_of_policy(chosen), why)


def _mean(points: Sequence[Point], policy: str, column: str) -> float:
    values = [s.value(column).mean for point in points for s in point.summaries if s.policy == policy]
    return sum(values) / len(values) if values else math.nan


def _score(points: Sequence[Point], policy: str, own: Sequence[str]) -> float:
    logarithms = []
    for point in points:
        p90 = {s.policy: s.value("ttft_p90_s").mean for s in point.summaries if s.policy in own}
        best = min(p90.values())
        if not math.isfinite(p90[policy]):
            return math.inf
        logarithms.append(math.log(max(p90[policy], 1e-9) / max(best, 1e-9)))
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.inf
