"""Runs the C++ stress programs of the build under test; `make sanitize` does so with a sanitizer's build."""

import os
import subprocess
from pathlib import Path

import pytest

SOURCES = sorted(Path(__file__).parent.glob("*.cc"))
# One thread that steps through a simulated clock and network: TSan has no second one to see.
ONE_THREAD = {"pd_exchange"}


def program(stem: str) -> Path:
    """Where the build of the extension, build/<preset>/python/vllm_router/_core.so, put the program."""
    directory = os.environ.get("ROUTER_STRESS_DIR")  # of a build without the extension
    if directory is None:
        from vllm_router import _core

        directory = Path(_core.__file__).parents[2] / "tests" / "stress"
    return Path(directory) / f"stress_{stem}"


@pytest.mark.parametrize("stem", [source.stem for source in SOURCES])
def test_threads_that_run_into_each_other_do_no_harm(stem):
    if stem in ONE_THREAD and "tsan" in program(stem).parts:
        pytest.skip("it has one thread")
    run = subprocess.run([program(stem)], capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, f"{stem} ended with {run.returncode}\n{run.stdout}{run.stderr}"
