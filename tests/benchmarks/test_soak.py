"""benchmarks/end_to_end/soak.py in small: nothing is lost, nothing is left behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "end_to_end" / "soak.py"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_small_soak_leaves_nothing_behind():
    done = subprocess.run(
        [sys.executable, SOAK, "--requests", "3000", "--seconds", "60", "--clients", "8"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["outcomes"]["status 200"] > 0
    assert sum(result["troubles"].values()) > 0
