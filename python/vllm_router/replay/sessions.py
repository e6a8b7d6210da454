"""Sessions of agents as a trace: turns that wait for responses, and agents that take sessions one by one.

    turn ─▶ response, pause ─▶ turn ─▶ response ───────────────────────▶ turn … last response ─▶ next session
                                           └─▶ turns of subagents … ──┘

A turn arrives a pause after the last of those that it waits for has ended, so a slow fleet gets fewer
requests: a closed loop. Times in the trace are those of a fleet of NOMINAL speed; the order of requests
follows from them, and only the first turn of each agent arrives at its time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_router.replay.trace import Trace, TraceError

# Agents that work at once: five for each of eight workers.
AGENTS = 40
MAX_AGENTS = 100_000

NOMINAL_TTFT_S = 1.0
NOMINAL_S_PER_TOKEN = 0.02


@dataclasses.dataclass(frozen=True, eq=False)
class Turn:
    """A request of a session. Block ids name what comes before them, too, over all sessions."""

    input_tokens: int
    output_tokens: int
    blocks: NDArray[np.uint64]
    after: tuple[int, ...] = ()
    """The turns of the same list that end before it; none: the session begins with it."""
    pause_s: float = 0.0
    """Seconds between the end of the last of these and this turn."""
    output_blocks: NDArray[np.uint64] | None = None
    """What later prompts have of the response; None in all turns: nothing."""
    key: int = 0
    """What the router knows the session by. Subagents may have one of their own."""


def checked_agents(agents: int | None, name: str = "agents", usual: int = AGENTS) -> int:
    """The number of agents, or of users.

    Raises:
        TraceError: it is not one.
    """
    if agents is None:
        return usual
    if isinstance(agents, bool) or not isinstance(agents, int) or not 1 <= agents <= MAX_AGENTS:
        raise TraceError(f"{name} is {agents}; it must be a whole number from 1 to {MAX_AGENTS}")
    return agents


def closed_loop(
    name: str,
    block_size: int,
    sessions: Sequence[Sequence[Turn]],
    agents: int,
    skipped: int = 0,
    begin_s: float | None = None,
) -> Trace:
    """The trace of agents that work on these sessions, the first ones first.

    Agents begin one after another over `begin_s` seconds. None: over the length of one session, so that they
    are not all at the same turn.
    """
    if begin_s is None:
        begin_s = float(np.mean([max(_ends(session)) for session in sessions]))
    spacing_s = begin_s / agents
    turns: list[Turn] = []
    after: list[list[int]] = []
    begins: list[float] = []
    last: list[list[int]] = [[] for _ in range(agents)]
    free_s = [agent * spacing_s for agent in range(agents)]
    for number, session in enumerate(sessions):
        agent, base = number % agents, len(turns)
        ends = _ends(session)
        for turn, end_s in zip(session, ends, strict=True):
            turns.append(turn)
            after.append([base + other for other in turn.after] or last[agent])
            begins.append(free_s[agent] + end_s - _nominal_s(turn))
        awaited = {other for turn in session for other in turn.after}
        last[agent] = [base + place for place in range(len(session)) if place not in awaited]
        free_s[agent] += max(ends)
    return _trace(name, block_size, turns, after, np.array(begins, np.float64), skipped)


def _nominal_s(turn: Turn) -> float:
    return NOMINAL_TTFT_S + NOMINAL_S_PER_TOKEN * turn.output_tokens


def _ends(session: Sequence[Turn]) -> list[float]:
    """When each turn ends, since the session's begin, at nominal speed."""
    ends: list[float] = []
    for turn in session:
        begin = max((ends[other] for other in turn.after), default=0.0) + turn.pause_s
        ends.append(begin + _nominal_s(turn))
    return ends


def _trace(
    name: str,
    block_size: int,
    turns: Sequence[Turn],
    after: Sequence[Sequence[int]],
    begins_s: NDArray[np.float64],
    skipped: int,
) -> Trace:
    blocks, offsets = _ragged([turn.blocks for turn in turns], np.uint64)
    known = [turn.output_blocks for turn in turns if turn.output_blocks is not None]
    responses, response_offsets = _ragged(known, np.uint64)
    after_rows, after_offsets = _ragged([np.array(rows, np.int64) for rows in after], np.int64)
    trace = Trace(
        name=name,
        block_size=block_size,
        arrival_s=begins_s,
        input_tokens=np.array([turn.input_tokens for turn in turns], np.uint32),
        output_tokens=np.array([turn.output_tokens for turn in turns], np.uint32),
        block_ids=blocks,
        block_offsets=offsets,
        session_ids=np.array([turn.key for turn in turns], np.uint64),
        output_block_ids=responses if known else None,
        output_offsets=response_offsets if known else None,
        after_rows=after_rows,
        after_offsets=after_offsets,
        pause_s=np.array([turn.pause_s for turn in turns], np.float64),
        skipped=skipped,
    )
    return trace.take(np.argsort(begins_s, kind="stable")).faster(1)


def _ragged(rows: Sequence[NDArray[Any]], kind: type) -> tuple[NDArray[Any], NDArray[np.int64]]:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return np.concatenate([*rows, np.empty(0, kind)]).astype(kind), offsets
