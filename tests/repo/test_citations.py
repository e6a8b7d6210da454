"""What a comment, docstring or message cites is a page of this repository, by its path from the root."""

import re
from pathlib import Path

from tests.repo.rules import none_of

ROOT = Path(__file__).parents[2]
PLACES = ["cpp", "python", "tests", "benchmarks", "examples"]
SUFFIXES = {".h", ".cc", ".py", ".pyi", ".yaml", ".txt"}
FOREIGN = {"doc/xxhash_spec.md"}  # of another project, which is named beside it
# A page's name, unless it is a string of its own: that is a path being put together.
PAGE = re.compile(r"""(?<![\w./"'<-])[\w./-]*\w\.md\b""")
QUOTED_HEADING = re.compile(r'(docs/[\w/]+\.md),\s+(?://\s+)?"([^"]+)"')


def sources():
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path, path.read_text()


def test_every_page_that_is_cited_exists():
    missing = [
        f"{path.relative_to(ROOT)}: {page}"
        for path, text in sources()
        for page in PAGE.findall(text)
        if page not in FOREIGN and not (ROOT / page).is_file()
    ]
    none_of(missing, "cite a page by its path from the root, or mend the citation")


def test_every_heading_that_is_cited_stands_on_its_page():
    missing = []
    cited = 0
    for path, text in sources():
        for page, heading in QUOTED_HEADING.findall(text):
            cited += 1
            heading = re.sub(r"\s+(//\s+)?", " ", heading)
            # A heading, or the bold words that open a paragraph.
            if not re.search(rf"^(#+ {heading}$|\*\*{heading}\b)", (ROOT / page).read_text(), re.MULTILINE):
                missing.append(f"{path.relative_to(ROOT)}: {page}, {heading}")
    none_of(missing, "cite a heading as it stands on the page")
    assert cited > 3
