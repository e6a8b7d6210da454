"""What must not be in the repository: paths of somebody's machine, work put off without a number, blobs."""

import re
import subprocess
from pathlib import Path

import pytest

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


def lines_with(pattern):
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked()
        if not is_corpus(path) and path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_knows_a_path_of_somebodys_machine():
    assert lines_with(MACHINE_PATHS) == []


def test_work_that_was_put_off_has_a_number():
    # TO DO(#12) in one word is allowed: the number says where it is discussed.
    assert lines_with(PUT_OFF) == []


def test_no_binaries_but_a_fuzzers_corpus():
    binaries = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if not is_corpus(path) and b"\0" in path.read_bytes()[:8192]
    ]
    assert binaries == []


def test_no_file_is_large():
    large = [str(path.relative_to(ROOT)) for path in tracked() if path.stat().st_size > 512 * 1024]
    assert large == []
