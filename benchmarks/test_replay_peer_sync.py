"""benchmarks/replay_peer_sync.py measures what it says, on a small part of a workload."""

from benchmarks import replay_peer_sync


def test_a_row_has_a_figure_for_each_column(capsys):
    argv = ["--workloads", "rag", "--routers", "4", "--seeds", "1", "--size", "0.05"]
    replay_peer_sync.main(argv)
    head, _, row, *missed = capsys.readouterr().out.splitlines()
    assert head.count("|") == row.count("|")
    alone, told, *_ = (float(cell) for cell in row.strip("| ").split("|")[2:])
    assert alone < told  # four routers that hear nothing lose most
    assert not any(" told: " in line for line in missed)


def test_what_misses_its_bar_is_named_with_both_figures():
    good = {name: [1.0] for name in replay_peer_sync.SYNCS} | {"alone": [0.5], "hit": [-1.0]}
    assert replay_peer_sync.misses("rag", 4, good) == []
    assert replay_peer_sync.misses("rag", 4, good | {"told": [1.0, 0.9]}) == [
        "rag, 4 routers, told: 0.90 is below 0.95"
    ]
    (line,) = replay_peer_sync.misses("rag", 4, good | {"alone": [0.9]})
    assert "the control that must lose does not" in line


def test_conversation_without_its_trace_is_said(capsys, monkeypatch):
    monkeypatch.setattr(replay_peer_sync, "Bench", lambda *_: None)
    assert replay_peer_sync.main(["--workloads", "conversation"]) == 0
    assert "conversation is not measured" in capsys.readouterr().err
