"""Compares this router with vllm-project/router, case by case, over the same simulated workers.

    python3 -m venv /tmp/reference && /tmp/reference/bin/pip install vllm-router==0.1.17
    make build
    PYTHONPATH=build/release/python:. .venv/bin/python -m tests.reference.compare /tmp/reference/bin/python --write

Each case does the same with both and writes down what it saw in a few words. Where the words differ, the case says
why; a difference without a reason, or a reason without a difference, ends the command with status 1. `--write` puts
how many there are into docs/how-to/switch_from_vllm_project_router.md, the differences into
tests/reference/differences.md, and what is the same into tests/reference/same.md. Takes two minutes. Nothing else
runs it, since it needs the other package.
"""

# ruff: noqa: E501, since a sentence of the page is one line
from __future__ import annotations

import argparse
import http.client
import os
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.reference import (  # noqa: F401
    endpoint_cases,
    failure_cases,
    fleet_cases,
    limit_cases,
    pd_cases,
    policy_cases,
    request_cases,
)
from tests.reference.cases import CASES, GROUPS, NOT_BUILT, Case
from tests.reference.command import API, COMMAND_CASES, PROBE, PYTHON_CASES, python_result
from tests.reference.sides import NOT_SHOWN, Side
from tests.reference.workers import Worker

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "switch_from_vllm_project_router.md"
SAME, DIFFERENCES = (Path(__file__).with_name(name) for name in ("same.md", "differences.md"))
# From the page to these.
FOLDER = "../../tests/reference"
BEGIN, END = (
    "<!-- compared: tests/reference/compare.py writes what follows -->",
    "<!-- compared: end -->",
)


class Row(NamedTuple):
    group: str
    name: str
    reference: str
    ours: str
    why: str

    @property
    def verdict(self) -> str:
        if self.reference == self.ours:
            return "same" if not self.why else "NO LONGER DIFFERENT"
        if not self.why:
            return "DIFFERS"
        return NOT_BUILT if NOT_BUILT in self.why else "on purpose"


def chosen_of(fleet: list[Worker], one: Case) -> tuple[list[Worker], list[str]]:
    """The workers of a case, and the flags that name them."""
    named = {worker.name: worker for worker in fleet}
    if one.stages is None:
        workers = [named[f"w{number}"] for number in range(1, one.workers + 1)]
        return workers, ["--worker-urls", *(worker.url for worker in workers)] if workers else []
    prefill = [named[f"p{number}"] for number in range(1, one.stages[0] + 1)]
    decode = [named[f"d{number}"] for number in range(1, one.stages[1] + 1)]
    flags = ["--vllm-pd-disaggregation"]
    for worker in prefill:
        flags += ["--prefill", worker.url]
    for worker in decode:
        flags += ["--decode", worker.url]
    return prefill + decode, flags


def run_cases(side: Side, fleet: list[Worker], chosen: list[Case]) -> list[str]:
    """What each case saw, in order."""
    seen: dict[int, str] = {}
    shared: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(chosen):
        key = (*one.flags, str(one.workers), str(one.stages), f"own {index}" if one.own else "")
        shared.setdefault(key, []).append(index)
    for indices in shared.values():
        first = chosen[indices[0]]
        workers, urls = chosen_of(fleet, first)
        for worker in fleet:
            worker.reset()
        with side.router(workers, [*first.flags, *urls]) as router:
            for index in indices:
                for worker in fleet:
                    worker.reset()
                try:
                    seen[index] = chosen[index].run(router)
                except (OSError, ValueError, http.client.HTTPException) as error:
                    seen[index] = f"{type(error).__name__}"
        print(".", end="", file=sys.stderr, flush=True)
    return [seen[index] for index in range(len(chosen))]


@dataclass
class Defaults:
    """Flags of the reference and their defaults in both."""

    same: list[str] = field(default_factory=list)
    other: list[tuple[str, Any, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def compare_defaults(reference: Any, ours: Any) -> Defaults:
    found = Defaults()
    for spelling in sorted(reference["flags"]):
        dest = reference["flags"][spelling][0]
        dest = {"prefill": "prefill_urls", "decode": "decode_urls"}.get(dest, dest)
        if spelling not in ours["flags"] or dest not in ours["parsed"]:
            found.missing.append(spelling)
        elif reference["parsed"][dest] == ours["parsed"][dest]:
            found.same.append(spelling)
        else:
            found.other.append((spelling, reference["parsed"][dest], ours["parsed"][dest]))
    return found


def compare(reference: Side, ours: Side, pattern: str) -> tuple[list[Row], Defaults, dict[str, Any]]:
    probes = {side.name: side.probe(PROBE) for side in (reference, ours)}
    rows = []
    for name, code, why in PYTHON_CASES:
        if re.search(pattern, name):
            rows.append(
                Row(API, name, reference.probe(python_result(code)), ours.probe(python_result(code)), why)
            )
    for name, flags, why in COMMAND_CASES:
        if re.search(pattern, name):
            rows.append(Row(API, name, reference.refusal(*flags), ours.refusal(*flags), why))
    fleet = [Worker(name) for name in ("w1", "w2", "w3", "p1", "p2", "d1", "d2", "d3")]
    chosen = sorted(
        (one for one in CASES if re.search(pattern, one.name)), key=lambda one: GROUPS.index(one.group)
    )
    results = [run_cases(side, fleet, chosen) for side in (reference, ours)]
    rows += [
        Row(one.group, one.name, theirs, mine, one.why)
        for one, theirs, mine in zip(chosen, *results, strict=True)
    ]
    return rows, compare_defaults(probes["reference"], probes["ours"]), probes


def cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def summary(rows: list[Row], defaults: Defaults, probes: dict[str, Any]) -> str:
    counts = Counter(row.verdict for row in rows)
    lines = [
        f"vllm-project/router {probes['reference']['version']} and vllm-router {probes['ours']['version']} ran {len(rows)} cases in front of the same workers:",
        f"{counts['same']} are [the same]({FOLDER}/{SAME.name}), {counts['on purpose']} [differ on purpose]({FOLDER}/{DIFFERENCES.name}), {counts[NOT_BUILT]} are {NOT_BUILT}.",
        "",
        f"Of {len(defaults.same) + len(defaults.other) + len(defaults.missing)} flags of its command, {len(defaults.same)} have the same default here"
        + (
            f", and {len(defaults.missing)} are not known: {', '.join(defaults.missing)}"
            if defaults.missing
            else ""
        )
        + ". Another default:",
        "",
        "| flag | there | here |",
        "|---|---|---|",
        *(f"| `{flag}` | {theirs} | {mine} |" for flag, theirs, mine in defaults.other),
    ]
    return "\n".join(lines)


def differences_markdown(rows: list[Row]) -> str:
    lines = [
        "# Where this router differs from vllm-project/router",
        "",
        "Cases in which the two did not do the same, as `tests/reference/compare.py --write` saw it, and why; the others are",
        f"[the same]({SAME.name}).",
    ]
    for group in dict.fromkeys(row.group for row in rows):
        other: dict[tuple[str, str, str], list[str]] = {}
        for row in (row for row in rows if row.group == group and row.verdict != "same"):
            there, here = (cell(saw.split(NOT_SHOWN)[0]) for saw in (row.reference, row.ours))
            here += ", others" if here == there else ""
            other.setdefault((there, here, cell(row.why or row.verdict)), []).append(cell(row.name))
        if other:
            lines += ["", f"## {group}", "", "| case | there | here | why |", "|---|---|---|---|"]
            lines += [f"| {'; '.join(names)} | {' | '.join(saw)} |" for saw, names in other.items()]
    return "\n".join(lines) + "\n"


def same_markdown(rows: list[Row]) -> str:
    lines = [
        "# The same with vllm-project/router",
        "",
        "Cases in which both routers did the same, as `tests/reference/compare.py --write` saw it; the others are",
        f"[differences]({DIFFERENCES.name}).",
    ]
    for group in dict.fromkeys(row.group for row in rows):
        same: dict[str, list[str]] = {}
        for row in (row for row in rows if row.group == group and row.verdict == "same"):
            same.setdefault(cell(row.reference.split(NOT_SHOWN)[0]), []).append(cell(row.name))
        lines += ["", f"## {group}", "", "| case | result |", "|---|---|"]
        lines += [f"| {'; '.join(names)} | {saw} |" for saw, names in same.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compare this router with vllm-project/router, case by case."
    )
    parser.add_argument("reference", help="the Python that has vllm-project/router installed")
    parser.add_argument("--write", action="store_true", help="write the tables")
    parser.add_argument("-k", default="", metavar="PATTERN", help="only cases whose names match")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        clean = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "API_KEY_VALIDATION_URLS")
        }
        path = os.pathsep.join(
            str(Path(part).resolve()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part
        )
        reference = Side("reference", settings.reference, clean, directory)
        ours = Side("ours", sys.executable, clean | ({"PYTHONPATH": path} if path else {}), directory)
        rows, defaults, probes = compare(reference, ours, settings.k)
    text = summary(rows, defaults, probes)
    print(text, differences_markdown(rows), sep="\n\n")
    if settings.write:
        page = PAGE.read_text(encoding="utf-8")
        head, rest = page.split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
        DIFFERENCES.write_text(differences_markdown(rows), encoding="utf-8")
        SAME.write_text(same_markdown(rows), encoding="utf-8")
    surprises = [row for row in rows if row.verdict in ("DIFFERS", "NO LONGER DIFFERENT")]
    for row in surprises:
        print(f"{row.verdict}: {row.name}\n  there {row.reference}\n  here  {row.ours}", file=sys.stderr)
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
