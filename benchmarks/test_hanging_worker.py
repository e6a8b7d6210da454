"""benchmarks/end_to_end/hanging_worker.py: does it still work?"""

from benchmarks.end_to_end import hanging_worker


def test_a_short_freeze(capsys):
    hanging_worker.main(["--clients", "8", "--seconds", "4", "--settle", "1.5"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["factor 0", "factor 5"]
