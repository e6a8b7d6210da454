"""The documentation's site has every page, in the order of docs/README.md."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, ROOT / "scripts" / "site_source.py", directory], check=True)
    return directory


@pytest.fixture(scope="module")
def listed(site):
    """The pages that can be reached from the menu."""
    pages = []
    for entry in yaml.safe_load((site / "mkdocs.yml").read_text())["nav"]:
        (target,) = entry.values()
        pages += [target] if isinstance(target, str) else target
    return pages


def test_every_page_is_in_the_menu_once(listed):
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("**/*.md")}
    wanted = {page for page in pages if not page.startswith("docs/decisions/")} | {"docs/decisions/README.md"}
    assert wanted <= set(listed)
    assert len(listed) == len(set(listed))


def test_what_the_menu_names_is_there(site, listed):
    assert [page for page in listed if not (site / "site_source" / page).is_file()] == []


def test_each_decision_has_a_line(site):
    page = (site / "site_source" / "docs" / "decisions" / "README.md").read_text()
    assert all(f"]({path.name})" in page for path in (ROOT / "docs" / "decisions").glob("0*.md"))


def test_programs_find_the_list_of_pages(site, listed):
    text = (site / "site_source" / "llms.txt").read_text()
    assert all(f"({page.removesuffix('.md')}/)" in text for page in listed if page.count("/") == 2)
