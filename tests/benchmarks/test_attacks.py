"""benchmarks/end_to_end/attacks.py in small: honest clients are served beside one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ATTACKS = Path(__file__).parents[2] / "benchmarks" / "end_to_end" / "attacks.py"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_attack_is_measured():
    done = subprocess.run(
        [sys.executable, ATTACKS, "--attacks", "poison", "--servers", "ours", "--seconds", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads(done.stdout)
    assert row["honest"] == row["served"] > 0
    assert row["workers_lost"] == 2
