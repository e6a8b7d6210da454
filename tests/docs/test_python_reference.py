"""docs/reference/python_api.md against the package: every public name once, as its docstring says."""

import re
from pathlib import Path

import vllm_router
from scripts.python_reference import render

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python_api.md"


def test_the_page_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text() == render(), (
        "run: python scripts/python_reference.py > docs/reference/python_api.md"
    )


def test_every_public_name_has_its_heading() -> None:
    headings = re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(headings) == [name for name in vllm_router.__all__ if name != "__version__"]
