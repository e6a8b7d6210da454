#!/usr/bin/env python3
"""Draws what run.py measured as a bar chart in SVG: CPU per request, ours beside nginx and HAProxy.

python benchmarks/end_to_end/run.py --policies auto --scenarios json1k json16k json100k sse1000
python benchmarks/end_to_end/chart.py build/release/end_to_end.json > docs/images/cost.svg
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

SCENARIOS = {
    "json1k": "1 KB requests, 64 connections",
    "json16k": "16 KB requests, 64 connections",
    "json100k": "100 KB requests, 16 connections",
    "sse1000": "one event of 1,000 streams",
}
CONTENDERS = {
    "ours": ("vllm-router, round_robin", "#1d6fa5"),
    "ours/auto": ("vllm-router, auto", "#6aa9cf"),
    "nginx": ("nginx", "#8a9199"),
    "haproxy": ("HAProxy", "#c3c8cd"),
}

LEFT, WIDTH, BAR, GAP = 235, 420, 15, 16


def medians(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """CPU per unit in microseconds: scenario to contender to the median over its valid rounds."""
    found: dict[str, dict[str, float]] = {}
    for scenario in SCENARIOS:
        rows = results["rows"].get(scenario, {})
        for contender in CONTENDERS:
            values = [row["cpu_us"] for row in rows.get(contender, []) if not row["invalid"]]
            if values:
                found.setdefault(scenario, {})[contender] = statistics.median(values)
    return found


def svg(results: dict[str, Any]) -> str:
    """The chart. Bars of a scenario share a scale of their own: its longest bar fills the width."""
    costs = medians(results)
    height = 30 + len(costs) * (len(CONTENDERS) * (BAR + 2) + GAP) + 34
    total = LEFT + WIDTH + 190
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{total}" height="{height}" fill="#ffffff"/>',
        '<text x="8" y="20" font-weight="bold">CPU of the proxy per request, µs (less is better)</text>',
    ]
    y = 36
    for scenario, costs_here in costs.items():
        longest = max(costs_here.values())
        lines.append(f'<text x="8" y="{y + BAR - 3}">{SCENARIOS[scenario]}</text>')
        for contender, cost in costs_here.items():
            name, colour = CONTENDERS[contender]
            length = round(WIDTH * cost / longest)
            lines.append(f'<rect x="{LEFT}" y="{y}" width="{length}" height="{BAR}" fill="{colour}"/>')
            lines.append(f'<text x="{LEFT + length + 5}" y="{y + BAR - 3}">{cost:.1f} {name}</text>')
            y += BAR + 2
        y += GAP
    about = results["about"]
    lines.append(
        f'<text x="8" y="{height - 12}" fill="#666666">Medians of one run on {about["machine"]}; '
        f"commit {about['commit'].split('-')[0]}. make bench draws it anew.</text>"
    )
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    sys.stdout.write(svg(json.loads(Path(sys.argv[1]).read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
