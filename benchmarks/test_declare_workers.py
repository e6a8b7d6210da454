"""benchmarks/declare_workers.py runs once, small, so that it does not rot."""

from benchmarks import declare_workers


def test_every_policy_is_measured(capsys):
    declare_workers.main(["--workers", "8", "--runs", "2"])
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in lines] == list(declare_workers.POLICIES)
    assert all(len([float(figure) for figure in line.split()[1:]]) == 9 for line in lines)


def test_each_case_takes_time():
    assert min(declare_workers.measure("round_robin", 100)) > 0
