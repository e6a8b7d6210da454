"""benchmarks/replay_join.py measures what it says, on a small part of a workload."""

from benchmarks import replay_join


def test_a_row_has_a_figure_for_each_column(capsys):
    replay_join.main(["--workloads", "chat", "--seeds", "1", "--size", "0.1"])
    head, _, row, *_ = capsys.readouterr().out.splitlines()
    assert head.count("|") == row.count("|")
    without_s, with_s, ratio, share = (float(cell) for cell in row.strip("| ").split("|")[1:])
    assert without_s == 0 or abs(with_s / without_s - ratio) < 0.5
    assert 0 < share < 1


def test_conversation_without_its_trace_is_said(capsys, monkeypatch):
    monkeypatch.setattr(replay_join, "Bench", lambda *_: None)
    assert replay_join.main(["--workloads", "conversation"]) == 0
    assert "conversation is not measured" in capsys.readouterr().err
