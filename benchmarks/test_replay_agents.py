"""benchmarks/replay_agents.py measures what it says, with a few sessions."""

import re

import numpy as np
import pytest

from benchmarks import replay_agents
from vllm_router.replay import generate


def test_pauses_get_the_mean_that_is_asked_for():
    trace = replay_agents.with_pause(generate("agents", 1, 3), 60)
    assert trace.pause_s[np.diff(trace.after_offsets) > 0].mean() == pytest.approx(60)


def test_a_table_has_a_row_for_each_policy_and_a_column_for_each_cell(capsys):
    words = ["--policies", "random", "auto", "--pauses", "1", "600", "--caches", "1", "--workers", "2"]
    assert replay_agents.main([*words, "--agents", "4", "--size", "8", "--seeds", "1"]) == 0
    hits, times, slow, _ = re.split(r"\n\n(?=\S+.*, by mean pause)", capsys.readouterr().out.strip())
    assert "| policy | 1 s, 1 | 600 s, 1 |" in hits
    rows = re.findall(r"`(\w+)` \| (\S+) \| (\S+)", hits)
    shares = {policy: [float(cell) for cell in cells] for policy, *cells in rows}
    assert set(shares) == {"random", "auto"}
    assert all(auto > random for auto, random in zip(shares["auto"], shares["random"], strict=True))
    assert times.count("`") == slow.count("`") == 4
