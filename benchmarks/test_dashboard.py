"""benchmarks/dashboard.py: does it still work?"""

from benchmarks import dashboard


def test_a_few_seconds(capsys):
    options = ["--workers", "5", "--viewers", "2", "--seconds", "2", "--per-second", "5", "--rounds", "1"]
    assert dashboard.main(options) == 0
    rows = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[:2] for row in rows] == [["off", "0"], ["on", "0"], ["on", "2"]]
    assert float(rows[2][4]) > 100  # bytes
