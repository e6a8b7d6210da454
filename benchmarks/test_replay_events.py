"""benchmarks/replay_events.py measures what it says, on a small part of a workload."""

from benchmarks import replay_events


def test_a_row_has_a_figure_for_each_column(capsys):
    assert replay_events.main(["--workloads", "rag", "--seeds", "1", "--size", "0.05"]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.count("|") == row.count("|")
    figures = [float(cell) for cell in row.strip("| ").split("|")[1:]]
    learned, _, _, alone, told, _, _ = figures
    assert 0 < alone < told <= learned * 1.1  # four routers that hear nothing lose most


def test_conversation_without_its_trace_is_said(capsys, monkeypatch):
    monkeypatch.setattr(replay_events, "Bench", lambda *_: None)
    assert replay_events.main(["--workloads", "conversation"]) == 0
    assert "conversation is not measured" in capsys.readouterr().err
