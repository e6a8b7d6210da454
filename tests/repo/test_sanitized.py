"""scripts/sanitized.sh: what it says of tests that fail, with no sanitizer under them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TEST = """
import os
import pathlib

def test_{name}():
    runs = pathlib.Path("runs_" + os.environ["PRESET"])
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    assert len(runs.read_text()) > {failures}
"""


@pytest.fixture
def project(tmp_path):
    """A project of its own, whose compiler has no runtimes to preload."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "sanitized.sh", tmp_path / "scripts")
    (tmp_path / "c++").write_text("#!/bin/sh\n")
    (tmp_path / "c++").chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def sanitized(project, preset, *files):
    """Its status and the notes that it left for the last lines of CI."""
    notes = project / f"notes_{preset}"
    notes.write_text("")
    command = [project / "scripts" / "sanitized.sh", preset, sys.executable, "-m", "pytest", *files]
    env = {
        "PATH": os.environ["PATH"],
        "CXX": str(project / "c++"),
        "CI_NOTES": str(notes),
        "PRESET": preset,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, timeout=60, check=False)
    said = notes.read_text().splitlines()
    return done.returncode, [line for line in said if line.startswith(("FLAKY", "FAILED"))]


def test_a_run_names_what_failed_in_it_and_nothing_of_the_run_before(project):
    (project / "test_a.py").write_text(TEST.format(name="fails_twice", failures=2))
    (project / "test_b.py").write_text(TEST.format(name="fails_once", failures=1))
    failed = "FAILED: test_a.py::test_fails_twice (under asan, alone too)"
    assert sanitized(project, "asan", "test_a.py") == (1, [failed])
    flaky = "FLAKY: test_b.py::test_fails_once (failed under tsan among others, passed alone)"
    assert sanitized(project, "tsan", "test_b.py") == (0, [flaky])
