"""benchmarks/replay_bypass.py measures what it says, on a small part of a workload."""

import pytest

from benchmarks import replay_bypass


def test_a_row_has_a_figure_for_each_column_and_is_one_without_the_bypass(capsys):
    words = "--workloads chat --seeds 1 --size 0.05 --decode 2 --thresholds 256 100000"
    assert replay_bypass.main(words.split()) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2 * 3  # one and two prefill workers
    cells = [[cell.strip() for cell in row.strip("| ").split("|")] for row in rows]
    assert {len(row) for row in cells} == {head.count("|") - 1}
    assert [row[1] for row in cells] == ["1 + 2"] * 3 + ["2 + 2"] * 3
    for row in (cells[0], cells[3]):
        assert row[3:] == ["0", "0%", *["1.00"] * 5]
    for few, more in ((cells[1], cells[2]), (cells[4], cells[5])):
        assert 0 < float(few[4].rstrip("%")) < float(more[4].rstrip("%"))
        assert float(more[9]) < float(few[9]) < 1


def test_conversation_without_its_trace_is_said(capsys, monkeypatch):
    monkeypatch.delenv("REPLAY_TRACE", raising=False)
    assert replay_bypass.main(["--workloads", "conversation"]) == 0
    assert "conversation is not measured" in capsys.readouterr().err


def test_seeds_are_compared_each_with_its_own():
    assert replay_bypass.ratio([{"x": 2.0}, {"x": 8.0}], [{"x": 1.0}, {"x": 2.0}], "x") == "2.83"
    assert replay_bypass.ratio([{"x": 0.0}], [{"x": 2.0}], "x") == "0"
    with pytest.raises(ValueError, match="zip"):
        replay_bypass.ratio([{"x": 0.0}], [], "x")
