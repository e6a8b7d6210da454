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


@pytest.mark.parametrize(
    "arguments",
    [
        "--mode throughput --ops 20000",
        "--mode latency --rate 20000 --seconds 0.2",
        "--mode match --rate 20000 --seconds 0.1",
        "--mode soak --ops 200000 --shares 1 --restart-seconds 0.2 --churn-seconds 0.2 --lost 0.02",
    ],
    ids=lambda arguments: arguments.split()[1],
)
def test_a_stream_of_kv_events_ends_in_the_same_picture(arguments):
    small = ["--sources", "4", "--blocks", "1000", "--prompts", "2", "--rounds", "1", "--limit-seconds", "90"]
    program = PROGRAMS.parent / "end_to_end" / "kv_stream"
    run = subprocess.run([program, *arguments.split(), *small], capture_output=True, text=True, timeout=110)
    assert run.returncode == 0, run.stdout + run.stderr
