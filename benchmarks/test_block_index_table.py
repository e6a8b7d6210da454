"""benchmarks/block_index_table.py prints its table, and every structure gives the same answers."""

import subprocess
import sys
from pathlib import Path

import vllm_router._core

SCRIPT = Path(__file__).with_name("block_index_table.py")
BUILD = Path(vllm_router._core.__file__).parents[2]


def test_the_table_of_the_small_sizes_is_complete():
    run = subprocess.run(
        [sys.executable, SCRIPT, BUILD, "--small"], capture_output=True, text=True, timeout=110, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    rows = [line for line in run.stdout.splitlines() if line.startswith("| ")]
    for family in ("Chats", "HalfHit", "HotPrefix", "Decode", "Record", "Readers"):
        assert any(row.startswith(f"| {family} ") for row in rows)
