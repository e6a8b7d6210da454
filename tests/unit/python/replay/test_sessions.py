"""python/vllm_router/replay/sessions.py: who waits for whom."""

import numpy as np
import pytest

from vllm_router.replay.sessions import AGENTS, MAX_AGENTS, Turn, checked_agents, closed_loop
from vllm_router.replay.trace import TraceError


def turn(tokens, after=(), pause_s=0.0, **members):
    return Turn(tokens, 10, np.array([tokens], np.uint64), after, pause_s, **members)


# A parent's two turns, and two subagents between them; the second one has two turns.
#   10 ─▶ 11 ──────▶ 14
#    └──▶ 12 ─▶ 13 ──┘
FAMILY = [turn(10), turn(11, (0,)), turn(12, (0,), 9.0), turn(13, (2,)), turn(14, (1, 3), 2.0)]


def waits(trace):
    """Of each request, by its input tokens: for whom it waits."""
    tokens = trace.input_tokens.tolist()
    bounds = zip(trace.after_offsets[:-1], trace.after_offsets[1:], strict=True)
    return {
        tokens[row]: {tokens[other] for other in trace.after_rows[first:last]}
        for row, (first, last) in enumerate(bounds)
    }


def test_a_parent_waits_for_its_subagents():
    trace = closed_loop("made", 16, [FAMILY], agents=3)
    assert waits(trace) == {10: set(), 11: {10}, 12: {10}, 13: {12}, 14: {11, 13}}
    assert dict(zip(trace.input_tokens.tolist(), trace.pause_s.tolist(), strict=True))[12] == 9
    assert trace.is_closed_loop


def test_an_agents_next_session_waits_for_all_that_ended_its_last():
    runs_on = [turn(20), turn(21, (0,))]  # two ends: 30 waits for 10 only
    forks = [turn(10), turn(11, (0,)), turn(12, (0,))]
    trace = closed_loop("made", 16, [forks, runs_on, [turn(30)], [turn(40)]], agents=2)
    assert waits(trace) == {
        10: set(), 11: {10}, 12: {10}, 30: {11, 12},
        20: set(), 21: {20}, 40: {21},
    }  # fmt: skip


def test_requests_are_in_an_order_in_which_each_comes_after_those_that_it_waits_for():
    trace = closed_loop("made", 16, [FAMILY, FAMILY, FAMILY], agents=2)
    rows = np.repeat(np.arange(len(trace)), np.diff(trace.after_offsets))
    assert (trace.after_rows < rows).all()
    assert trace.arrival_s[0] == 0
    assert (np.diff(trace.arrival_s) >= 0).all()


def test_agents_do_not_all_begin_at_once():
    trace = closed_loop("made", 16, [[turn(10), turn(11, (0,), 100.0)]] * 4, agents=4)
    begins = trace.arrival_s[np.diff(trace.after_offsets) == 0]
    assert np.diff(begins) == pytest.approx((100 + 2 * 1.2) / 4)


def test_responses_are_known_or_not():
    known = [turn(16, output_blocks=np.array([7, 8], np.uint64))]
    assert closed_loop("made", 16, [known], 1).output_blocks(0).tolist() == [7, 8]
    assert closed_loop("made", 16, [[turn(16)]], 1).output_block_ids is None


@pytest.mark.parametrize("agents", [0, -1, 1.5, True, MAX_AGENTS + 1])
def test_a_number_of_agents_is_checked(agents):
    with pytest.raises(TraceError, match=f"agents is {agents}; it must be a whole number from 1"):
        checked_agents(agents)
    assert checked_agents(None) == AGENTS
