"""The workloads `users` and `demo`: people who chat, each with one chat after another.

    user    question ─▶ response, think ─▶ question ─▶ response, think ─▶ … last response ─▶ next chat

A question comes when its user has read the response before it and thought, so a slow fleet gets fewer.
`users` has the chats of the workload `chat`. `demo` is what `vllm-router demo` sends: chats of eight turns
whose users think for a third of a second, so that a fleet of three workers is never idle.
"""

from __future__ import annotations

import numpy as np

from vllm_router.replay.sessions import Turn, closed_loop
from vllm_router.replay.trace import Trace

USERS_BLOCK = 128
USERS_CHATS = 1200
USERS = 200
TENANTS = 40

# As in demo.py, in tokens of its simulated workers.
DEMO_BLOCK = 16
DEMO_CHATS = 240
DEMO_USERS = 12
DEMO_TURNS = 8
DEMO_SYSTEM_TOKENS = 87
DEMO_QUESTION_TOKENS = (74, 84)
DEMO_RESPONSE_TOKENS = 24
DEMO_THINK_S = (0.15, 0.45)

Dice = np.random.Generator


class _Chats:
    """Chats made turn by turn, and ids for blocks that nothing had before."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._next_id = 0
        self._next_key = 0

    def fresh(self, blocks: int) -> list[int]:
        """Ids of so many new blocks."""
        first, self._next_id = self._next_id, self._next_id + max(0, blocks)
        return list(range(first, self._next_id))

    def chat(self, system: list[int], tokens: int, turns: list[tuple[int, int, float]]) -> list[Turn]:
        """A chat that begins with these blocks and tokens.

        Args:
            system: Block ids of the system prompt, full blocks only.
            tokens: Tokens of the system prompt.
            turns: Of each the tokens of question and response, and the seconds before it.
        """
        self._next_key += 1
        stream, made = list(system), []
        for number, (question, response, pause_s) in enumerate(turns):
            prompt = tokens + question
            tokens = prompt + response
            stream = stream + self.fresh(tokens // self._block_size - len(stream))
            full = prompt // self._block_size
            made.append(
                Turn(
                    prompt,
                    response,
                    np.array(stream[:full], np.uint64),
                    after=(number - 1,) if number else (),
                    pause_s=pause_s,
                    output_blocks=np.array(stream[full:], np.uint64),
                    key=self._next_key,
                )
            )
        return made


def _tokens(dice: Dice, mean_of_log: float, spread_of_log: float, least: int, most: int) -> int:
    return int(np.clip(dice.lognormal(mean_of_log, spread_of_log), least, most))


def users_workload(dice: Dice, chats: int, users: int) -> Trace:
    """The trace of so many users: 40 Zipf tenants, five turns, 5 s + Exp(30 s) to think."""
    maker = _Chats(USERS_BLOCK)
    systems = [maker.fresh(int(dice.integers(4, 33))) for _ in range(TENANTS)]
    popularity = 1 / np.arange(1, TENANTS + 1)
    made = []
    for tenant in dice.choice(TENANTS, chats, p=popularity / popularity.sum()):
        turns = [
            (
                _tokens(dice, 4.9, 1.0, 16, 8000),
                _tokens(dice, 5.2, 0.8, 8, 2000),
                5 + float(dice.exponential(30)),
            )
            for _ in range(5)
        ]
        made.append(maker.chat(systems[tenant], len(systems[tenant]) * USERS_BLOCK, turns))
    return closed_loop("users", USERS_BLOCK, made, min(users, chats))


def demo_workload(dice: Dice, chats: int, users: int) -> Trace:
    """The trace of the demo's users, who all begin within half a second."""
    maker = _Chats(DEMO_BLOCK)
    made = []
    for _ in range(chats):
        turns = [
            (
                int(dice.integers(*DEMO_QUESTION_TOKENS)),
                DEMO_RESPONSE_TOKENS,
                float(dice.uniform(*DEMO_THINK_S)),
            )
            for _ in range(DEMO_TURNS)
        ]
        made.append(maker.chat([], DEMO_SYSTEM_TOKENS, turns))
    return closed_loop("demo", DEMO_BLOCK, made, min(users, chats), begin_s=DEMO_THINK_S[0])
