"""README and docs: their Python runs, their links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_python_of_a_page_runs(page: Path) -> None:
    # One process a page, its blocks in order, as a reader would type them.
    program = "\n".join(blocks(page))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("index", ["README.md", "docs/README.md"])
def test_the_index_names_every_page(index: str) -> None:
    linked = re.findall(r"\]\(([^)#:\s]+)\)", (ROOT / index).read_text())
    found = {(ROOT / index).parent / target for target in linked}
    rooms = ("tutorial", "how-to", "reference", "explanation")
    missing = {page for room in rooms for page in (ROOT / "docs" / room).glob("*.md")} - found
    assert not missing
