"""docs/reference/replay.md against the command, the rows and the presets."""

import itertools
import re
from pathlib import Path

from scripts.replay_reference import render
from vllm_router.replay import Fleet, Holdout, generate, run
from vllm_router.replay.command import make_parser
from vllm_router.replay.readers import FORMATS
from vllm_router.replay.workloads import WORKLOADS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "replay.md"


def column(heading: str) -> list[str]:
    lines = PAGE.read_text().split(heading)[1].splitlines()[2:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_the_page_is_what_the_command_says():
    again = "python scripts/replay_reference.py > docs/reference/replay.md"
    assert PAGE.read_text() == render(), f"run: {again}"


def test_the_page_names_every_flag():
    named = set(re.findall(r"^- `(--[a-z-]+)`", PAGE.read_text(), re.MULTILINE))
    flags = {name for action in make_parser()._actions for name in action.option_strings}
    assert named == {name for name in flags if "_" not in name and not name.startswith("--no-")} - {
        "-h",
        "--help",
    }


def test_the_page_names_every_column_format_and_workload():
    fleet = Fleet(workers=2)
    (row,) = run(generate("rag", 1, 50), ["random"], fleet, load=0.5, goodput=True, holdout=Holdout(5))
    staged = Fleet(prefill=1, decode=1)
    (pair,) = run(generate("rag", 1, 50), ["auto"], staged, load=0.5, goodput=True)
    assert sorted(column("| column | meaning |")) == sorted({**row, **pair})
    assert column("| format | recognised by | blocks |") == list(FORMATS)
    assert column("| workload | requests | mean in / out | ideal hit | contents |") == list(WORKLOADS)
