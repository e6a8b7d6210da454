"""benchmarks/cancel_storm.py: does it still work, and is nothing left?"""

from benchmarks import cancel_storm


def test_a_small_storm(capsys):
    assert cancel_storm.main(["--rounds", "1", "--requests", "60", "--patience-ms", "80"]) == 0
    row = [cell.strip() for cell in capsys.readouterr().out.splitlines()[2].split("|")[1:-1]]
    assert row[1] == "60"
    assert int(row[3]) >= 0
