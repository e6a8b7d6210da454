"""benchmarks/pairs.py: does it still work?"""

from benchmarks import pairs


def test_a_small_run(capsys):
    assert pairs.main(["--rounds", "1", "--requests", "80", "--times", "10", "--words", "5"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
