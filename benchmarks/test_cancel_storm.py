"""benchmarks/cancel_storm.py: does it still work, and is nothing left?"""

from benchmarks import cancel_storm


def test_a_small_storm(capsys):
    assert cancel_storm.main(["--rounds", "1", "--requests", "60", "--patience-ms", "80"]) == 0
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]
    ]
    assert [row[1] for row in rows] == ["60", "60"]
    assert all(int(row[3]) >= 0 for row in rows)
    assert rows[1][5] == "0"
