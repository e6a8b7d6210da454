"""Workloads: traffic made of a seed, each kind with one thing that policies get wrong.

    chat   40 tenants with system prompts of 0.5k to 4k tokens, five turns that grow, time to think between
    rag    150 groups of 5 users: 6,144 tokens shared in a group, 1,229 of each user, prompts come again
    adv    every prompt begins with the same 512 tokens; 30 % share a viral prefix of 8k tokens besides
    hot    60 % share 4k tokens and differ in 40; answers are long, so that decoding is the work
    agents coding agents and their subagents, whose turns wait for responses (agents.py)
    users  the chats of `chat`, by a fixed number of users who read a response before they go on (users.py)
    demo   the users of `vllm-router demo`, likewise
    classes, tenants   who shares a fleet: a batch job beside chats, tenants beside a flood (shared.py)

Arrivals are random (exponential gaps); a replay stretches them to the rate that it wants; those of agents
and users follow from responses. The same seed makes the same trace. Blocks have 128 tokens (of agents 512, of
demo 16), and a prompt's last block has an id only when it is full.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vllm_router._messages import quoted
from vllm_router.replay.agents import SESSIONS, agents_workload
from vllm_router.replay.sessions import AGENTS, checked_agents
from vllm_router.replay.shared import TENANT_REQUESTS, TENANT_USERS, classes_workload, tenants_workload
from vllm_router.replay.trace import Trace, TraceError
from vllm_router.replay.users import (
    DEMO_CHATS,
    DEMO_USERS,
    USERS,
    USERS_CHATS,
    demo_workload,
    users_workload,
)

BLOCK = 128

CHAT_SESSIONS = 4800
RAG_REQUESTS = 6000
CLASSES_SESSIONS = 2400
ADV_REQUESTS = 10_000
HOT_REQUESTS = 12_000

Dice = np.random.Generator


class _Writer:
    """Requests as they are made, and ids for blocks that nobody had before."""

    def __init__(self) -> None:
        self.next_id = 0
        self._arrivals: list[float] = []
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._sessions: list[int] = []
        self._prompts: list[list[int]] = []
        self._answers: list[list[int]] = []

    def fresh(self, blocks: int) -> list[int]:
        """Ids of so many new blocks."""
        first, self.next_id = self.next_id, self.next_id + max(0, blocks)
        return list(range(first, self.next_id))

    def add(self, at_s: float, session: int, stream: list[int], tokens: int, answer: int) -> None:
        """One request. `stream`: the blocks of prompt and answer together, full ones only."""
        prompt_blocks = tokens // BLOCK
        self._arrivals.append(at_s)
        self._sessions.append(session)
        self._inputs.append(tokens)
        self._outputs.append(answer)
        self._prompts.append(stream[:prompt_blocks])
        self._answers.append(stream[prompt_blocks : (tokens + answer) // BLOCK])

    def add_alone(self, at_s: float, session: int, prefix: list[int], tokens: int, answer: int) -> None:
        """One request whose blocks after `prefix` nobody shares."""
        stream = prefix + self.fresh((tokens + answer) // BLOCK - len(prefix))
        self.add(at_s, session, stream, tokens, answer)

    def trace(self, name: str, since_s: float = 0, until_s: float = float("inf")) -> Trace:
        """All requests of a span of time, in order of arrival."""
        arrival_s = np.array(self._arrivals, np.float64)
        ids, offsets = _ragged(self._prompts)
        answer_ids, answer_offsets = _ragged(self._answers)
        whole = Trace(
            name=name,
            block_size=BLOCK,
            arrival_s=arrival_s,
            input_tokens=np.array(self._inputs, np.uint32),
            output_tokens=np.array(self._outputs, np.uint32),
            block_ids=ids,
            block_offsets=offsets,
            session_ids=np.array(self._sessions, np.uint64),
            output_block_ids=answer_ids,
            output_offsets=answer_offsets,
        )
        order = np.argsort(arrival_s, kind="stable")
        times = arrival_s[order]
        return whole.take(order[(times >= since_s) & (times <= until_s)]).faster(1)


def _ragged(lists: list[list[int]]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(row) for row in lists], out=offsets[1:])
    flat = np.fromiter((block for row in lists for block in row), np.uint64, int(offsets[-1]))
    return flat, offsets


def _tokens(dice: Dice, mean_of_log: float, spread_of_log: float, least: int, most: int) -> int:
    return int(np.clip(dice.lognormal(mean_of_log, spread_of_log), least, most))


def _chat(dice: Dice, sessions: int) -> Trace:
    writer = _Writer()
    tenants = 40
    systems = [writer.fresh(int(dice.integers(4, 33))) for _ in range(tenants)]
    popularity = 1 / np.arange(1, tenants + 1)
    of_tenant = dice.choice(tenants, sessions, p=popularity / popularity.sum())
    # Six sessions begin a second. The first five minutes fill up, the turns after the last begin empty out:
    # what is kept is the steady state between them, or the middle of a trace too short to have one.
    begins = np.cumsum(dice.exponential(1 / 6, sessions))
    for session, (begin, tenant) in enumerate(zip(begins, of_tenant, strict=True)):
        at_s, stream = float(begin), list(systems[tenant])
        tokens = len(stream) * BLOCK
        for _ in range(5):
            prompt = tokens + _tokens(dice, 4.9, 1.0, 16, 8000)
            answer = _tokens(dice, 5.2, 0.8, 8, 2000)
            tokens = prompt + answer
            stream = stream + writer.fresh(tokens // BLOCK - len(stream))
            writer.add(at_s, session, stream, prompt, answer)
            at_s += 5 + float(dice.exponential(60))
    end = float(begins[-1])
    return writer.trace("chat", min(300.0, end / 2), end)


def _rag(dice: Dice, requests: int) -> Trace:
    writer = _Writer()
    groups, users = 150, 5
    shared, own, answer = 6144, 1229, 1000
    of_group = [writer.fresh(shared // BLOCK) for _ in range(groups)]
    own_blocks = (shared + own) // BLOCK - shared // BLOCK
    prompts = [of_group[user // users] + writer.fresh(own_blocks) for user in range(groups * users)]
    at_s = 0.0
    for number in range(requests):
        if number % len(prompts) == 0:
            order = dice.permutation(len(prompts))
        at_s += float(dice.exponential(1))
        user = int(order[number % len(prompts)])
        writer.add_alone(at_s, user, prompts[user], shared + own, answer)
    return writer.trace("rag")


def _adv(dice: Dice, requests: int) -> Trace:
    writer = _Writer()
    universal = writer.fresh(4)
    viral = universal + writer.fresh(60)
    at_s = 0.0
    for number in range(requests):
        at_s += float(dice.exponential(1))
        prefix = viral if dice.random() < 0.3 else universal
        rest = 300 if prefix is viral else _tokens(dice, 7.7, 0.7, 64, 30_000)
        tokens = len(prefix) * BLOCK + rest
        writer.add_alone(at_s, number, prefix, tokens, _tokens(dice, 5.0, 0.7, 4, 1500))
    return writer.trace("adv")


def _hot(dice: Dice, requests: int) -> Trace:
    writer = _Writer()
    hot = writer.fresh(32)
    at_s = 0.0
    for number in range(requests):
        at_s += float(dice.exponential(1))
        prefix = hot if dice.random() < 0.6 else []
        tokens = len(hot) * BLOCK + 40 if prefix else _tokens(dice, 6.9, 0.7, 64, 16_000)
        writer.add_alone(at_s, number, prefix, tokens, _tokens(dice, 5.8, 0.6, 8, 2000))
    return writer.trace("hot")


_MAKERS: dict[str, tuple[Callable[[Dice, int], Trace], int]] = {
    "chat": (_chat, CHAT_SESSIONS),
    "rag": (_rag, RAG_REQUESTS),
    "adv": (_adv, ADV_REQUESTS),
    "hot": (_hot, HOT_REQUESTS),
    "classes": (lambda dice, sessions: classes_workload(dice, _chat(dice, sessions)), CLASSES_SESSIONS),
}


@dataclasses.dataclass(frozen=True)
class _ClosedLoop:
    """A workload that has people or agents, and pauses, instead of a rate."""

    make: Callable[[Dice, int, int], Trace]
    sessions: int
    who: str
    count: int
    """How many of them, if the caller does not say."""


_CLOSED_LOOPS = {
    "agents": _ClosedLoop(agents_workload, SESSIONS, "agents", AGENTS),
    "users": _ClosedLoop(users_workload, USERS_CHATS, "users", USERS),
    "demo": _ClosedLoop(demo_workload, DEMO_CHATS, "users", DEMO_USERS),
    "tenants": _ClosedLoop(tenants_workload, TENANT_REQUESTS, "users", TENANT_USERS),
}

CLOSED_LOOPS = tuple(_CLOSED_LOOPS)
# The place of a name is part of its seed.
WORKLOADS = ("chat", "rag", "adv", "hot", "agents", "users", "demo", "classes", "tenants")


def generate(
    name: str,
    seed: int = 1,
    size: int | None = None,
    agents: int | None = None,
    users: int | None = None,
) -> Trace:
    """Make a workload.

    Args:
        name: `chat`, `rag`, `adv`, `hot`, `agents`, `users`, `demo`, `classes` or `tenants`.
        seed: The same seed makes the same trace.
        size: Requests to make (of chat and classes: sessions, of which the steady state is kept; of agents,
            users and demo: sessions); None is the size that the documents measure with.
        agents: Of `agents`: how many work at once, each on a session; None is 40.
        users: Of `users` and `demo`: how many chat at once; None is 200, of `demo` 12. Of `tenants`: requests
            that each tenant has open; None is 64.

    Raises:
        TraceError: there is no such workload, a number is below 1, or the workload has no agents or users.
    """
    if name not in WORKLOADS:
        raise TraceError(f"workload is {quoted(name)}; it must be one of {', '.join(WORKLOADS)}")
    if size is not None and size < 1:
        raise TraceError(f"the size of workload {name} is {size}; at least 1 is needed")
    dice = np.random.default_rng([seed, WORKLOADS.index(name)])
    loop = _CLOSED_LOOPS.get(name)
    for who, count in (("agents", agents), ("users", users)):
        if count is not None and (loop is None or loop.who != who):
            raise TraceError(f"{who} is {count}, and workload {name} has none; leave it out")
    if loop is not None:
        given = agents if loop.who == "agents" else users
        return loop.make(dice, size or loop.sessions, checked_agents(given, loop.who, loop.count))
    make, usual = _MAKERS[name]
    return make(dice, size or usual)
