"""Charts of a replay: an HTML page that needs nothing else, and a PNG by matplotlib.

The page has its style and its charts (inline SVG) in itself: no script, font or picture comes from elsewhere.
"""

from __future__ import annotations

import html
import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm_router.replay.report import COLUMNS, Advice, Column, Point, columns_of, points_of
from vllm_router.replay.runner import Row
from vllm_router.replay.trace import TraceError

# What is drawn: (column, title, logarithmic)
CHARTS = (
    ("ttft_p90_s", "p90 time to first token, seconds (logarithmic)", True),
    ("hit_share", "hit share of prompt tokens", False),
)

_BAR, _GAP, _LEFT, _WIDTH = 18, 6, 250, 520
_OWN, _BEST, _COMPARED = "#4878a8", "#2e8b57", "#b0b0b0"

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .2em .7em; text-align: right }
td:first-child, th:first-child { text-align: left } th { border-bottom: 1px solid #888 }
.best { font-weight: bold; color: #1d6b40 } .compared { color: #777 } .saturated { color: #b03030 }
svg text { font: 12px system-ui, sans-serif } pre { background: #f3f3f3; padding: .7em }
"""


def as_html(rows: Sequence[Row], advice: Advice | None, about: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>vllm-router replay</title>',
        f"<style>{_STYLE}</style></head><body>",
        "<h1>Which policy serves this traffic best?</h1>",
    ]
    if advice is not None:
        parts.append("<h2>Recommended</h2>")
        if advice.flags:
            parts.append(f"<pre>{_text('vllm-router ' + advice.flags)}</pre>")
        parts += [f"<p>{_text(sentence)}</p>" for sentence in advice.why]
    for point in points_of(rows):
        parts.append(f"<h2>{_text(point.title)}</h2>")
        parts += [_svg(point, *chart) for chart in CHARTS]
        parts.append(_html_table(point))
    parts.append("<p>Model figures: they rank policies and are not milliseconds of a product. Grey: other ")
    parts.append("routers' formulas, in the replay only.</p>")
    facts = "".join(f"<li>{_text(name)}: {_text(value)}</li>" for name, value in about.items())
    parts.append(f"<ul>{facts}</ul></body></html>\n")
    return "\n".join(parts)


def _text(value: object) -> str:
    return html.escape(str(value))


def _html_table(point: Point) -> str:
    columns = columns_of(point)
    best = {column.name: point.best(column) for column in columns}
    head = "".join(f"<th>{_text(column.title)}</th>" for column in columns)
    lines = [f"<table><tr><th>policy</th>{head}<th></th></tr>"]
    for summary in point.summaries:
        cells = "".join(
            f'<td class="best">{_text(column.show(summary.value(column.name).mean))}</td>'
            if summary.policy in best[column.name]
            else f"<td>{_text(column.show(summary.value(column.name).mean))}</td>"
            for column in columns
        )
        kind = ' class="compared"' if summary.comparison else ""
        note = '<td class="saturated">saturated</td>' if summary.saturated else "<td></td>"
        lines.append(f"<tr><td{kind}>{_text(summary.policy)}</td>{cells}{note}</tr>")
    return "\n".join([*lines, "</table>"])


def _column(name: str) -> Column:
    return next(column for column in COLUMNS if column.name == name)


def _bars(point: Point, name: str, logarithmic: bool) -> list[tuple[str, float, float, str]]:
    """Of each policy its name, value, length of bar from 0 to 1, and colour."""
    best = point.best(_column(name))
    values = {summary.policy: summary.value(name).mean for summary in point.summaries}
    finite = [value for value in values.values() if math.isfinite(value)]
    top = max(finite, default=1.0)
    # The shortest bar of a logarithmic chart is still seen.
    bottom = min((value for value in finite if value > 0), default=1.0) / 2
    bars = []
    for summary in point.summaries:
        value = values[summary.policy]
        if math.isnan(value):
            length = 0.0
        elif math.isinf(value) or top <= 0:
            length = 1.0 if math.isinf(value) else 0.0
        elif logarithmic:
            length = math.log(max(value, bottom) / bottom) / math.log(top / bottom)
        else:
            length = value / top
        colour = _BEST if summary.policy in best else _COMPARED if summary.comparison else _OWN
        bars.append((summary.policy, value, min(1.0, max(0.0, length)), colour))
    return bars


def _svg(point: Point, name: str, title: str, logarithmic: bool) -> str:
    bars = _bars(point, name, logarithmic)
    height = len(bars) * (_BAR + _GAP) + 30
    lines = [
        f'<svg role="img" aria-label="{_text(title)}" width="{_LEFT + _WIDTH + 90}" height="{height}">',
        f'<text x="{_LEFT}" y="16" font-weight="bold">{_text(title)}</text>',
    ]
    for row, (policy, value, length, colour) in enumerate(bars):
        y = 26 + row * (_BAR + _GAP)
        shown = _column(name).show(value)
        label = policy if len(policy) <= 36 else policy[:35] + "…"
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{_text(label)}</text>')
        lines.append(
            f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH * length:.1f}" height="{_BAR}" fill="{colour}"/>'
        )
        lines.append(f'<text x="{_LEFT + _WIDTH * length + 6:.1f}" y="{y + 13}">{_text(shown)}</text>')
    return "\n".join([*lines, "</svg>"])


def save_plot(rows: Sequence[Row], path: str | Path) -> None:
    """The same bars as a picture, by matplotlib; the ending of `path` says which kind.

    Raises:
        TraceError: matplotlib is missing, or the file cannot be written.
    """
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError:
        raise TraceError(
            "--plot needs the package matplotlib: pip install 'vllm-router[replay]'; --html needs nothing"
        ) from None
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    points = points_of(rows)
    most = max(len(point.summaries) for point in points)
    figure, axes = pyplot.subplots(
        len(points), len(CHARTS), figsize=(13, len(points) * (1.4 + 0.3 * most)), squeeze=False
    )
    for line, point in zip(axes, points, strict=True):
        for axis, (name, title, logarithmic) in zip(line, CHARTS, strict=True):
            bars = _bars(point, name, logarithmic)[::-1]
            values = [value if math.isfinite(value) else 0 for _, value, _, _ in bars]
            axis.barh(
                [policy for policy, *_ in bars],
                values,
                color=[colour for *_, colour in bars],
                log=logarithmic,
            )
            seen = [value for value in values if value > 0]
            if logarithmic and seen:
                axis.set_xlim(left=min(seen) / 2)
            axis.set_xlabel(title.replace(" (logarithmic)", ""))
        line[0].set_title(point.title, loc="left", fontsize=10)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise TraceError(f"--plot {path} cannot be written: {error}") from None
    finally:
        pyplot.close(figure)
