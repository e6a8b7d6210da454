"""benchmarks/trace_instructions.py: does it still work?"""

import shutil

import pytest

from benchmarks import trace_instructions


@pytest.mark.timeout(600)  # starting a router takes Valgrind half a minute
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
def test_a_few_requests(capsys):
    assert trace_instructions.main(["--requests", "100", "--shares", "1"]) == 0
    rows = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["0%", "100%"]
    assert all(int(row[1].replace(",", "")) > 1000 for row in rows)
