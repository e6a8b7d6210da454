"""benchmarks/continued_instructions.py: does it still work?"""

import shutil

import pytest

from benchmarks import continued_instructions


@pytest.mark.timeout(900)  # starting a router takes Valgrind half a minute
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
def test_a_few_streams(capsys):
    assert continued_instructions.main(["--streams", "8"]) == 0
    rows = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1] for row in rows] == ["off", "verified"]
    off, on = (int(row[2].replace(",", "")) for row in rows)
    assert 0 < off < on
