"""python/vllm_router/__main__.py: `python -m vllm_router` is the command."""

import subprocess
import sys

import vllm_router


def package(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vllm_router", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_package_is_the_command() -> None:
    run = package("--version")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"vllm-router {vllm_router.__version__}\n", "")


def test_its_exit_status_is_the_commands() -> None:
    run = package("--no-such-flag")
    assert run.returncode == 2
    assert "--no-such-flag" in run.stderr
