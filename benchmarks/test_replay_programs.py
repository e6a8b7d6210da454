"""benchmarks/replay_programs.py measures what it says, with a few sessions."""

import re

from benchmarks import replay_programs


def test_a_session_s_prompt_has_its_past_and_the_shared_front():
    trace = replay_programs.agents_of(replay_programs.SETTINGS[0], 1, 1)
    assert trace.is_closed_loop
    first, last = trace.input_tokens.min(), trace.input_tokens.max()
    assert first == 7_300
    assert last <= 7_300 + 59 * 1_720


def test_a_row_has_the_figures_of_each_mode(capsys):
    replay_programs.main(["--programs", "24", "--seeds", "1", "--sessions", "1"])
    rows = re.findall(r"^\| 24; (\d+) s, .* \| (\d+), (\d+), (\d+) \|", capsys.readouterr().out, re.M)
    assert [row[0] for row in rows] == ["4", "20"]
    for _, off, observe, on in rows:
        assert off == observe
        assert int(on) > 0
