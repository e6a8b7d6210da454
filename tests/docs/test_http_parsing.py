"""docs/explanation/http_parsing.md against the rules that the parsers are tested with."""

import re
from pathlib import Path

from tests.fuzz.rows import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "http_parsing.md"


def table(heading: str) -> list[list[str]]:
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_names_every_label_once() -> None:
    labels = [label for row in table("The rules") for label in re.findall(r"`(\w+)`", row[2])]
    assert sorted(labels) == sorted({row.rule for row in ROWS if row.rule})
