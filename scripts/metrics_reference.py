"""Writes the lists of docs/reference/metrics.md: python scripts/metrics_reference.py, with a built package.

Names, types, labels and HELP texts are those of scrapes in which every family occurs
(tests/fakes/every_metric.py). What stands between the lists, and the marks * in them, are kept. A comment in
front of each list says which families it has, by the prefixes of their names; the longest prefix that fits
decides.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fakes.prometheus_text import Family

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
MARK = re.compile(r"^(<!-- metrics: (.+) -->\n\n)(?:- .*\n)*\n?", re.MULTILINE)
DEPRECATED = "deprecated"  # the list of former names
PREFIX = "vllm_router_"
KEPT = re.compile(r"^- `(\w+)` \*", re.MULTILINE)  # names of vllm-project/router, which the page marks
# What a HELP text names: flags, names and label values with `_`, paths.
CODE = re.compile(r"(?<![\w/.-])(--[a-z][a-z-]*[a-z]|[a-z]+_[a-z_]*[a-z](?:\.\.\.)?|/[a-z][\w/-]*)")


def render(page: str, families: Mapping[str, Family]) -> str:
    """The page with lists of these families."""
    places: dict[str, str] = {}
    for mark in MARK.finditer(page):
        for prefix in mark[2].split():
            if places.setdefault(prefix, mark[2]) != mark[2]:
                raise LookupError(f"docs/reference/metrics.md names {prefix} in two places")
    kept = set(KEPT.findall(page))
    rows: dict[str, list[str]] = {place: [] for place in places.values()}
    for name in sorted(families, key=lambda name: name.removeprefix(PREFIX)):
        rows[_place(name, families[name], places)].append(_row(name, families[name], kept))
    return MARK.sub(lambda mark: mark[1] + "".join(rows[mark[2]]) + "\n", page)


def _place(name: str, family: Family, places: Mapping[str, str]) -> str:
    short = name.removeprefix(PREFIX)
    if family.help.startswith("Deprecated: "):
        return places[DEPRECATED]
    fitting = [prefix for prefix in places if short.startswith(prefix)]
    if not fitting:
        raise LookupError(f"no list of docs/reference/metrics.md has {name}: add it to one of the comments")
    return places[max(fitting, key=len)]


def _row(name: str, family: Family, kept: set[str]) -> str:
    short = name.removeprefix(PREFIX)
    labels = ", ".join(f"`{label}`" for names in family.label_names() for label in names)
    text = CODE.sub(r"`\1`", family.help.replace(PREFIX, "")).removesuffix(".")
    mark = " *" if short in kept else ""
    return f"- `{short}`{mark} ({family.kind}{': ' * bool(labels)}{labels}): {text}\n"


def scraped() -> Mapping[str, Family]:
    """Every family, of routers that run for a moment."""
    sys.path.insert(0, str(ROOT))
    from tests.fakes.every_metric import scrape_everything

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        return scrape_everything(stack, Path(folder))


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(), scraped()))
