"""Every benchmark runs once, small, so that none rots: `make bench-smoke`."""

import json
import subprocess
from pathlib import Path

import pytest

import vllm_router._core

HERE = Path(__file__).parent
# The build that made the extension, build/<preset>/python/vllm_router/_core.so, has the programs too.
PROGRAMS = Path(vllm_router._core.__file__).parents[2] / "benchmarks" / "micro"


@pytest.mark.parametrize("stem", sorted(source.stem for source in (HERE / "micro").glob("*.cc")))
def test_a_micro_benchmark_runs(stem):
    program = PROGRAMS / f"{stem}_bench"
    # A floor of zero seconds makes one iteration enough.
    run = subprocess.run(
        [program, "--benchmark_min_time=0", "--benchmark_format=json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    benchmarks = json.loads(run.stdout)["benchmarks"]
    assert benchmarks != []
    assert [b["name"] for b in benchmarks if b.get("error_occurred")] == []
