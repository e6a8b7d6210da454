"""examples/: each program runs as it is, and the command would start with the file of settings."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_router.launch_router import parse_router_args

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=100, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_program_runs_as_it_is(program: Path) -> None:
    if program.name.startswith("test_"):
        assert " passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(program))
    else:
        assert run(str(program))


def test_the_file_of_settings_is_complete_and_right() -> None:
    args = parse_router_args(["--config", str(EXAMPLES / "router.yaml")])
    args._validate_router_args()
    assert args.warnings() == []
    assert args.router_options()["worker_urls"][2:] == ["http://gpu-2:8000@0", "http://gpu-2:8000@1"]


def test_the_list_names_every_example() -> None:
    listed = re.findall(r"^\| \[(\S+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(
        path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".yaml")
    )
