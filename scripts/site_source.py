"""Gathers the pages of the documentation's site.

    site_source.py DIRECTORY

DIRECTORY/site_source gets the pages and what they link to, at the places that they have in the source tree;
DIRECTORY/mkdocs.yml adds their order to /mkdocs.yml; DIRECTORY/site_source/llms.txt lists them for programs.
`python -m mkdocs build --strict -f DIRECTORY/mkdocs.yml` makes the site.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)#\s:]+)")
SECTIONS = ("Tutorial", "How to", "Reference", "Explanation")
OTHER = {
    "Project": [
        "docs/decisions/README.md",
        "benchmarks/README.md",
        "examples/README.md",
        "tests/README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]
}


def title(page: Path) -> str:
    """Its first heading, without marks."""
    return re.search(r"^# (.+)$", page.read_text(), re.MULTILINE)[1].replace("`", "")


def tracked() -> set[Path]:
    """The files of the source tree, those that are not committed yet too."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {path for name in filter(None, names.split("\0")) if (path := ROOT / name).is_file()}


def gather(target: Path) -> None:
    """Copies README.md and all that it leads to within the source tree; makes what is longer on the site."""
    known = tracked()
    waiting, done = {ROOT / "README.md"} | {ROOT / page for page in OTHER["Project"][1:]}, set()
    waiting |= {path for path in known if path.is_relative_to(ROOT / "docs")}
    while waiting:
        page = waiting.pop()
        done.add(page)
        copy = target / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(page, copy)
        if page.suffix == ".md":
            linked = {(page.parent / link).resolve() for link in LINK.findall(page.read_text())}
            waiting |= (linked & known) - done
    decisions = target / "docs" / "decisions"
    lines = [f"- [{title(page)}]({page.name})" for page in sorted(decisions.glob("0*.md"))]
    index = decisions / "README.md"
    index.write_text(f"{index.read_text()}\n" + "\n".join(lines) + "\n")
    whole = [sys.executable, str(ROOT / "scripts" / "python_reference.py"), "--full"]
    page = subprocess.run(whole, check=True, capture_output=True, text=True).stdout
    (target / "docs" / "reference" / "python_api.md").write_text(page)
    overview = target / "docs" / "README.md"
    overview.write_text(overview.read_text().replace("](decisions/)", "](decisions/README.md)"))


def sections(target: Path) -> dict[str, list[str]]:
    """The pages of each section, in the order of docs/README.md."""
    parts = re.split(r"^## (.+)$", (target / "docs" / "README.md").read_text(), flags=re.MULTILINE)
    found = {}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        assert name in SECTIONS, name
        pages = [f"docs/{link}" for link in LINK.findall(text) if link.endswith(".md") and ".." not in link]
        found[name] = [page for page in pages if page != OTHER["Project"][0]]
    return found | OTHER


def main(directory: Path) -> None:
    """Gathers them."""
    target = directory / "site_source"
    shutil.rmtree(target, ignore_errors=True)
    gather(target)
    order = ["INHERIT: ../mkdocs.yml", "nav:", "  - vllm-router: README.md", "  - All pages: docs/README.md"]
    listed = ["# vllm-router", ""]
    for name, pages in sections(target).items():
        order.append(f"  - {name}:")
        listed += [f"## {name}", ""]
        for page in pages:
            order.append(f"      - {page}")
            listed.append(f"- [{title(target / page)}]({page.removesuffix('.md')}/)")
        listed.append("")
    (directory / "mkdocs.yml").write_text("\n".join(order) + "\n")
    (target / "llms.txt").write_text("\n".join(listed))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
