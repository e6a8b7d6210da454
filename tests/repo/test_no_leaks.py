"""What must not be in the repository: paths of somebody's machine, work put off without a number, blobs."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.repo.rules import none_of

ROOT = Path(__file__).parents[2]

# Written so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(r"/(?:work|root|home/\w+|Users/\w+|tmp/bash_jobs)/(?!\w*[<{$])")
PUT_OFF = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b(?!\(#\d+\))")


def tracked():
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def is_corpus(path):
    return "corpus" in path.relative_to(ROOT).parts


def is_picture(path):
    """Of a page in a browser, which nothing draws where documents are built."""
    return path.parent == ROOT / "docs" / "images" and path.suffix == ".png"


def lines_with(pattern):
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked()
        if not is_corpus(path) and not is_picture(path) and path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_knows_a_path_of_somebodys_machine():
    none_of(lines_with(MACHINE_PATHS), "write these paths relative to the checkout, or as <path>")


def test_work_that_was_put_off_has_a_number():
    # TO DO(#12) in one word is allowed: the number says where it is discussed.
    none_of(lines_with(PUT_OFF), "do it, or open an issue and write its number in brackets")


def test_no_binaries_but_a_fuzzers_corpus_and_pictures_of_pages():
    binaries = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if not is_corpus(path) and not is_picture(path) and b"\0" in path.read_bytes()[:8192]
    ]
    none_of(binaries, "generate these where they are needed")


def test_no_file_is_large():
    large = [str(path.relative_to(ROOT)) for path in tracked() if path.stat().st_size > 512 * 1024]
    none_of(large, "at most 512 KiB: generate it, or keep the part that is needed")
