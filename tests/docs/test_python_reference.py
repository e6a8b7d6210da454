"""docs/reference/python_api.md against the package: every public name once, as its docstring says."""

import re
from pathlib import Path

import vllm_router
from scripts.python_reference import render, summary

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python_api.md"


def test_the_page_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text() == summary(), (
        "run: python scripts/python_reference.py > docs/reference/python_api.md"
    )


def test_every_public_name_has_its_heading() -> None:
    public = [name for name in vllm_router.__all__ if name != "__version__"]
    assert sorted(re.findall(r"^## (\w+)$", render(), re.MULTILINE)) == public
    short = re.findall(r"^(?:## |- `(?=\w+\(\)`: \w))(\w+)(?:\(\)`.*)?$", PAGE.read_text(), re.MULTILINE)
    assert set(public) <= set(short)


def test_properties_are_shown_as_properties() -> None:
    """mending row 49: `Trace.ideal_hit_share` is a property, and the page does not call it."""
    assert "`ideal_hit_share`" in PAGE.read_text()
    page = render()
    assert "#### ideal_hit_share -> float" in page
    assert "ideal_hit_share()" not in page


def test_the_tie_of_workers_is_what_the_page_says() -> None:
    """mending row 49: of equals the first in `workers`, also after one was removed."""
    tracker = vllm_router.BlockCacheTracker(block_size=1)
    for worker in ("a", "b", "c"):
        tracker.record_request([1, 2], worker)
    tracker.remove_worker("a")
    while tracker.sweep():
        pass
    tracker.record_request([1, 2], "d")
    workers = [worker for worker in tracker.workers if worker is not None]
    best = tracker.find_best_worker([1, 2])
    assert best is not None
    assert best.worker == workers[0]
    assert "known longest until a worker is removed" in render()


def test_the_page_on_embedding_says_what_outcomes_do_and_what_is_spread() -> None:
    """mending row 49: policies do learn from outcomes, and new conversations do not stay together."""
    page = (PAGE.parents[1] / "how-to" / "embed_the_router.md").read_text()
    assert "No policy that is built uses" not in page
    assert "prefix_spread" in page
    assert "same prefix, same worker" in page
