"""The workload `agents`: coding agents that take one session after another.

    parent     turn 1 ─pause─▶ turn 2 ─pause─▶ turn 3 ───────────────▶ turn 4 …    20 to 100 turns, median 43
    subagents                                    ├─▶ turn 1 … turn n ──┤           in 44 % of the sessions
                                                 └─▶ turn 1 … turn m ──┘

A pause is a tool that runs, 1 to 600 s. A prompt is the one before, the response to it and the tool's output.
It begins as the agent's first prompt (tools and system prompt, KINDS) and grows, first fast, then slowly,
to some 200,000 tokens: the median of parents is 142,000. Responses are short, the median is 444. These are
the medians that vLLM publishes of the AgentX benchmark, with more than 96 % of the prompts cached. Shares of
first prompts are measured from recorded requests of these agents.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from vllm_router.replay.sessions import Turn, closed_loop
from vllm_router.replay.trace import Trace

BLOCK = 512

SESSIONS = 120
SESSIONS_WITH_SUBAGENTS = 0.44
AFTER_SUBAGENTS_S = 1.0  # the parent has their results at once

Blocks = NDArray[np.uint64]
Dice = np.random.Generator


@dataclasses.dataclass(frozen=True)
class Kind:
    """What tells agents apart for a cache. Tokens are bytes of the wire / 4."""

    name: str
    share: float
    """Of all sessions."""
    first_prompt: int
    """Tokens of tools and system prompt."""
    shared: float
    """Part of it that is the same in all sessions; the rest differs by directory, date or commit."""
    subagents_first_prompt: int
    of_parent: float
    """Part of the parent's first prompt with which a subagent's begins."""
    subagents_have_a_key: bool
    """Whether the router knows a subagent by another session than its parent's."""


KINDS = (
    Kind("claude_code", 0.4, 29_000, 0.11, 25_000, 0.0, False),
    Kind("codex", 0.3, 10_000, 0.99, 10_000, 0.86, False),
    Kind("opencode", 0.2, 7_700, 0.29, 7_700, 0.92, True),
    Kind("qwen_code", 0.1, 19_700, 0.33, 17_000, 0.0, True),
)


class _Maker:
    """Sessions from one source of randomness, and ids for blocks that nothing had before."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._next_id = 0
        self._next_key = 0
        self._fronts = [self._fresh(int(kind.shared * kind.first_prompt) // BLOCK) for kind in KINDS]
        self._subagents = [
            self._fresh(int(kind.shared * kind.subagents_first_prompt) // BLOCK) for kind in KINDS
        ]

    def session(self) -> list[Turn]:
        """The turns of one agent and its subagents, each behind those that it waits for."""
        dice = self._dice
        place = int(dice.choice(len(KINDS), p=[kind.share for kind in KINDS]))
        kind, key = KINDS[place], self._key()
        front = self._extended(self._fronts[place], kind.first_prompt)
        count, last = self._within(43, 0.45, 20, 100), self._within(200_000, 0.2, 90_000, 240_000)
        parent = self._prompts(kind.first_prompt, front, count, last)
        # Subagents of a session begin alike: with their parent's front or their kind's, then their own.
        inherited = front[: int(kind.of_parent * kind.first_prompt) // BLOCK]
        common = self._extended(
            inherited if len(inherited) else self._subagents[place], kind.subagents_first_prompt
        )
        spawning: set[int] = set()
        if dice.random() < SESSIONS_WITH_SUBAGENTS:
            spawning.update(dice.integers(1, count - 1, 2 if dice.random() < 0.3 else 1).tolist())
        turns: list[Turn] = []
        awaited: list[int] = []
        for number, prompt in enumerate(parent):
            pause_s = AFTER_SUBAGENTS_S if len(awaited) > 1 else self._pause_s()
            turns.append(dataclasses.replace(prompt, after=tuple(awaited), pause_s=pause_s, key=key))
            awaited = [len(turns) - 1]
            for _ in range(int(dice.integers(1, 5)) if number in spawning else 0):
                own_key = self._key() if kind.subagents_have_a_key else key
                awaited.append(self._add_subagent(turns, awaited[0], kind, common, own_key))
        return turns

    def _add_subagent(self, turns: list[Turn], after: int, kind: Kind, common: Blocks, key: int) -> int:
        """Adds its turns behind the one that spawned it; returns the place of its last."""
        first = kind.subagents_first_prompt
        count, more = self._within(8, 0.5, 3, 25), self._within(30_000, 0.4, 8000, 80_000)
        for prompt in self._prompts(first, common, count, first + more):
            turns.append(dataclasses.replace(prompt, after=(after,), pause_s=self._pause_s(), key=key))
            after = len(turns) - 1
        return after

    def _prompts(self, first: int, front: Blocks, turns: int, last: int) -> list[Turn]:
        """Prompts that grow from a first to a last length, as the root of the turn's number."""
        dice = self._dice
        steps = np.diff(np.sqrt(np.arange(turns))) * dice.lognormal(0, 0.6, turns - 1)
        grown = np.concatenate(([0], np.cumsum(steps))) / steps.sum() * (last - first)
        task = int(dice.integers(200, 2000))
        stream, made = front, []
        least = 0
        for more in grown:
            prompt = max(first + task + int(more), least)
            response = self._within(444, 0.9, 16, 8000)
            stream = self._extended(stream, prompt + response)
            full = prompt // BLOCK
            made.append(Turn(prompt, response, stream[:full], output_blocks=stream[full:]))
            least = prompt + response + 16
        return made

    def _extended(self, stream: Blocks, tokens: int) -> Blocks:
        """The stream with new blocks until it has so many tokens."""
        return np.concatenate((stream, self._fresh(tokens // BLOCK - len(stream))))

    def _fresh(self, blocks: int) -> Blocks:
        first, self._next_id = self._next_id, self._next_id + max(0, blocks)
        return np.arange(first, self._next_id, dtype=np.uint64)

    def _key(self) -> int:
        self._next_key += 1
        return self._next_key

    def _pause_s(self) -> float:
        return float(np.clip(self._dice.lognormal(np.log(8), 1.5), 1, 600))

    def _within(self, middle: float, spread_of_log: float, lowest: int, highest: int) -> int:
        return int(np.clip(self._dice.lognormal(np.log(middle), spread_of_log), lowest, highest))


def agents_workload(dice: Dice, sessions: int, agents: int) -> Trace:
    """The trace of so many sessions, of which so many agents work on one each."""
    maker = _Maker(dice)
    return closed_loop("agents", BLOCK, [maker.session() for _ in range(sessions)], min(agents, sessions))
