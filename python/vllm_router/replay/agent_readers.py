"""Readers of recorded sessions of agents: two formats, whose turns become a closed loop (sessions.py).

    weka      {"block_size": 64, "requests": [
                 {"type": "n" | "s", "t": s, "in": n, "out": n, "hash_ids": [],
                  "api_time": s, "think_time": s},
                 {"type": "subagent", "status": "", "requests": []}]}
    tracelab  {"session_id": "", "round_index": n, "input_tokens_total": n, "prefix_tokens": n,
               "output_tokens": n, "timing_events": [{"event_type": "", "timestamp": ""}]}

weka, a line per session: the AgentX traces of SemiAnalysis and those of kv-cache-tester. Requests of a list
go one after another. Subagents begin when the request before them has ended, and the next request waits for
them, but not for those that were launched to run on (async_launched).

tracelab, a line per request: uw-syfi/TraceLab. It has no blocks: a prompt longer than the one before
continues it, and a shorter one, as after a compaction, keeps what the provider had cached. It does not tell
which session is a subagent's, so each is one of its own.

The times of a recording contain the speed of what served it; only pauses are kept, up to LONGEST_PAUSE_S.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_router._messages import quoted
from vllm_router.replay._format import (
    Format,
    Misfit,
    Record,
    blocks_of,
    length_of,
    moment_of,
    number_of,
    object_of,
    whole_of,
)
from vllm_router.replay.sessions import Turn

LONGEST_PAUSE_S = 600.0
TRACELAB_BLOCK = 512

Chains = dict[tuple[int, int], int]


class SessionFormat(Format):
    """A format whose lines make sessions instead of records."""

    def __init__(self) -> None:
        self.turns = 0
        """So many were read."""

    def sessions(self) -> Sequence[Sequence[Turn]]:
        """What was read, once all was."""
        raise NotImplementedError


class Weka(SessionFormat):
    """A session in each line."""

    def __init__(self) -> None:
        super().__init__()
        self._sessions: list[list[Turn]] = []
        self._shared: Chains = {}
        self._blocks = 0

    def sessions(self) -> Sequence[Sequence[Turn]]:
        """What was read."""
        return self._sessions

    def record(self, line: str) -> Record | None:
        """Reads a session."""
        row = object_of(line)
        size = whole_of(row, "block_size")
        if not 1 <= size <= 1 << 20:
            raise Misfit(f"block_size is {size}; it must be from 1 to 1048576")
        if self.block_size not in (0, size):
            raise Misfit(f"block_size is {size}, and sessions before have {self.block_size}; split the file")
        scope = row.get("hash_id_scope", "local")
        if scope not in ("local", "global"):
            raise Misfit(f"hash_id_scope is {quoted(scope)}; it must be local or global")
        self.block_size = size
        turns = self._turns(_requests(row), self._shared if scope == "global" else {})
        if not turns:
            raise Misfit("requests is empty; a session has at least one request")
        self._sessions.append(turns)
        self.turns += len(turns)
        return None

    def _turns(self, requests: list[dict[str, Any]], chains: Chains) -> list[Turn]:
        turns: list[Turn] = []
        before: dict[str, Any] | None = None
        awaited: list[int] = []
        last: list[int] = []
        for request in requests:
            if request.get("type") != "subagent":
                pause_s = 0.0 if awaited else _pause_s(request, before)
                turns.append(self._turn(request, (*last, *awaited), pause_s, chains))
                before, last, awaited = request, [len(turns) - 1], []
                continue
            inner, previous = last, None
            for nested in _requests(request):
                turns.append(self._turn(nested, tuple(inner), _pause_s(nested, previous), chains))
                previous, inner = nested, [len(turns) - 1]
            if previous is not None and request.get("status") != "async_launched":
                awaited += inner
        return turns

    def _turn(self, row: dict[str, Any], after: tuple[int, ...], pause_s: float, chains: Chains) -> Turn:
        kind = row.get("type")
        if kind not in ("n", "s"):
            raise Misfit(f"type is {quoted(kind)}; it must be n, s or, not within a subagent, subagent")
        tokens, response = length_of(row, "in", 1), length_of(row, "out", 0)
        blocks = self._chained(blocks_of(row, "hash_ids", tokens, self.block_size), chains)
        # Subagents of Claude Code, whose sessions these are, have their parent's session.
        return Turn(tokens, response, blocks, after, pause_s, key=len(self._sessions))

    def _chained(self, ids: list[int], chains: Chains) -> NDArray[np.uint64]:
        """Ids that name what comes before them, too, and not those of other sessions."""
        place, named = -1, []
        for block in ids:
            known = chains.get((place, block))
            if known is None:
                known = chains[(place, block)] = self._blocks
                self._blocks += 1
            named.append(place := known)
        return np.array(named, np.uint64)


class TraceLab(SessionFormat):
    """A request in each line."""

    block_size = TRACELAB_BLOCK

    def __init__(self) -> None:
        super().__init__()
        self._rounds: dict[str, list[tuple[float, float, int, int, int, int]]] = {}

    def record(self, line: str) -> Record | None:
        """Reads a request."""
        row = object_of(line)
        session = row.get("session_id")
        if not isinstance(session, str) or not session:
            raise Misfit(f"session_id is {quoted(session)}; it must be a text")
        sent_s, ended_s = _times(row)
        tokens, response = length_of(row, "input_tokens_total", 1), length_of(row, "output_tokens", 0)
        cached, number = whole_of(row, "prefix_tokens"), whole_of(row, "round_index")
        self._rounds.setdefault(session, []).append((sent_s, ended_s, number, tokens, cached, response))
        self.turns += 1
        return None

    def sessions(self) -> Sequence[Sequence[Turn]]:
        """What was read, each session in order of time."""
        sessions, next_id = [], 0
        for key, rounds in enumerate(self._rounds.values()):
            turns: list[Turn] = []
            blocks, tokens_before, ended_before_s = np.empty(0, np.uint64), 0, None
            for sent_s, ended_s, _, tokens, cached, response in sorted(rounds, key=lambda r: (r[0], r[2])):
                full = tokens // TRACELAB_BLOCK
                kept = blocks[: full if tokens >= tokens_before else max(0, cached) // TRACELAB_BLOCK][:full]
                fresh = np.arange(next_id, next_id + full - len(kept), dtype=np.uint64)
                next_id += len(fresh)
                blocks = np.concatenate((kept, fresh))
                pause_s = 0.0 if ended_before_s is None else _bounded(sent_s - ended_before_s)
                after = (len(turns) - 1,) if turns else ()
                turns.append(Turn(tokens, response, blocks, after, pause_s, key=key))
                tokens_before, ended_before_s = tokens, ended_s
            sessions.append(turns)
        return sessions


def _requests(row: dict[str, Any]) -> list[dict[str, Any]]:
    requests = row.get("requests")
    if not isinstance(requests, list) or not all(isinstance(request, dict) for request in requests):
        raise Misfit(f"requests is {quoted(requests)}; it must be a list of objects")
    return requests


def _bounded(pause_s: float) -> float:
    return min(max(0.0, pause_s), LONGEST_PAUSE_S)


def _pause_s(request: dict[str, Any], before: dict[str, Any] | None) -> float:
    """What the client waited before a request: as recorded, else since the response before."""
    if request.get("think_time") is not None:
        return _bounded(number_of(request, "think_time"))
    if before is None:
        return 0.0
    served_s = number_of(before, "api_time") if before.get("api_time") is not None else 0.0
    return _bounded(number_of(request, "t") - number_of(before, "t") - served_s)


_INPUT = ("user_message", "tool_result")
_OUTPUT = ("reasoning", "text", "tool_call")


def _times(row: dict[str, Any]) -> tuple[float, float]:
    """When a request was sent, and when its response ended: its last input and its last output."""
    events = row.get("timing_events")
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise Misfit(f"timing_events is {quoted(events)}; it must be a list of objects")

    def seconds(kinds: tuple[str, ...]) -> list[float]:
        return [
            moment_of(str(event.get("timestamp")), "timestamp")
            for event in events
            if event.get("event_type") in kinds
        ]

    inputs, outputs = seconds(_INPUT), seconds(_OUTPUT)
    if not inputs and not outputs:
        raise Misfit("timing_events has no input and no output, so that the time of the request is unknown")
    sent_s = max(inputs) if inputs else min(outputs)
    return sent_s, max([sent_s, *outputs])
