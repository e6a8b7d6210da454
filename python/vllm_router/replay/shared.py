"""The workloads `classes` and `tenants`: one fleet for those who do not know of each other.

    classes    the chats of `chat` as interactive requests, and beside them a batch job: prompts of 4,000
               tokens of its own, responses of 400, one for two turns of the chats
    tenants    eight tenants who ask about documents of 6,000 tokens, each with so many requests open all the
               time and the first, `flood`, with eight times as many; and `light`, a request every two seconds

Both are what a benchmark of priority classes plays (benchmarks/replay_classes.py). In `tenants` a response
brings the next request of its tenant at once, so that all but `light` have a backlog; a trace ends when the
requests of every tenant have been served, and shares are those of the time until the first tenant runs out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_router.replay.sessions import Turn, closed_loop
from vllm_router.replay.trace import CLASSES, DEFAULT_CLASS, NO_TENANT, Trace

BLOCK = 128

INTERACTIVE, BATCH = CLASSES.index("interactive"), CLASSES.index("batch")

BATCH_PROMPT = 4000
BATCH_RESPONSE = 400
BATCH_PER_TURN = 0.5

TENANTS = 8
TENANT_USERS = 64
FLOOD_FACTOR = 8
DOCUMENTS = 20
DOCUMENT_TOKENS = 6000
QUESTION_TOKENS = (30, 200)
ANSWER_TOKENS = (60, 200)
LIGHT_RATE = 0.5
LIGHT_PROMPT = (500, 3000)
TENANT_REQUESTS = 16_000
FLOOD, LIGHT = "flood", "light"

Dice = np.random.Generator


# ---- traces of several sources


def merged(name: str, parts: Sequence[Trace]) -> Trace:
    """Traces side by side, in order of arrival. Their blocks and sessions become different ones.

    Requests of a trace without classes are `default`, those of one without tenants beside others `anonymous`.
    Tenants with one name are one.
    """
    has_tenants = any(part.tenant_names for part in parts)
    names = list(dict.fromkeys(tenant for part in parts for tenant in part.tenant_names or (NO_TENANT,)))
    block, session, row = 0, 0, 0
    columns: dict[str, list[NDArray[Any]]] = {}
    offsets: dict[str, int] = {}

    def add(column: str, values: NDArray[Any]) -> None:
        columns.setdefault(column, []).append(values)

    def add_ragged(column: str, ids: NDArray[Any], starts: NDArray[np.int64], names_ids: str) -> None:
        add(names_ids, ids)
        add(column, starts[:-1] + offsets.get(column, 0))
        offsets[column] = offsets.get(column, 0) + int(starts[-1])

    for part in parts:
        count = len(part)
        none = np.zeros(count + 1, np.int64)
        add("arrival_s", part.arrival_s)
        add("input_tokens", part.input_tokens)
        add("output_tokens", part.output_tokens)
        sessions = part.session_ids if part.session_ids is not None else np.arange(count, dtype=np.uint64)
        add("session_ids", sessions + np.uint64(session))
        session += int(sessions.max(initial=0)) + 1
        add_ragged("block_offsets", part.block_ids + np.uint64(block), part.block_offsets, "block_ids")
        outputs = part.output_block_ids if part.output_block_ids is not None else np.empty(0, np.uint64)
        starts = part.output_offsets if part.output_offsets is not None else none
        add_ragged("output_offsets", outputs + np.uint64(block), starts, "output_block_ids")
        block += int(max(part.block_ids.max(initial=0), outputs.max(initial=0))) + 1
        after = part.after_rows if part.after_rows is not None else np.empty(0, np.int64)
        waits = part.after_offsets if part.after_offsets is not None else none
        add_ragged("after_offsets", after + row, waits, "after_rows")
        add("pause_s", part.pause_s if part.pause_s is not None else np.zeros(count))
        row += count
        classes = part.priority_classes
        add("priority_classes", classes if classes is not None else np.full(count, DEFAULT_CLASS, np.uint8))
        if has_tenants:
            place = np.array([names.index(name) for name in part.tenant_names or (NO_TENANT,)], np.uint32)
            add("tenants", place[part.tenants if part.tenants is not None else np.zeros(count, np.int64)])
    joined: dict[str, Any] = {column: np.concatenate(values) for column, values in columns.items()}
    for column, end in offsets.items():
        joined[column] = np.append(joined[column], end)
    if len(joined["after_rows"]) == 0:
        for column in ("after_rows", "after_offsets", "pause_s"):
            del joined[column]
    trace = Trace(
        name=name, block_size=parts[0].block_size, tenant_names=tuple(names) if has_tenants else (), **joined
    )
    return trace.take(np.argsort(trace.arrival_s, kind="stable"))


def of_class(trace: Trace, priority_class: int) -> Trace:
    """The same requests, all of one class."""
    return dataclasses.replace(trace, priority_classes=np.full(len(trace), priority_class, np.uint8))


def of_tenant(trace: Trace, name: str) -> Trace:
    """The same requests, all of one tenant."""
    return dataclasses.replace(trace, tenants=np.zeros(len(trace), np.uint32), tenant_names=(name,))


def alone(
    name: str,
    arrival_s: NDArray[np.float64],
    inputs: NDArray[np.int64],
    outputs: NDArray[np.int64],
) -> Trace:
    """Requests that share nothing, each a session of its own. Arrays of n: seconds, tokens and tokens."""
    full = inputs // BLOCK
    both = (inputs + outputs) // BLOCK
    starts = np.concatenate(([0], np.cumsum(both)))
    ids = np.arange(starts[-1], dtype=np.uint64)
    place = np.arange(starts[-1]) - np.repeat(starts[:-1], both)
    is_prompt = place < np.repeat(full, both)
    return Trace(
        name=name,
        block_size=BLOCK,
        arrival_s=arrival_s.astype(np.float64),
        input_tokens=inputs.astype(np.uint32),
        output_tokens=outputs.astype(np.uint32),
        block_ids=ids[is_prompt],
        block_offsets=np.concatenate(([0], np.cumsum(full))).astype(np.int64),
        session_ids=np.arange(len(inputs), dtype=np.uint64),
        output_block_ids=ids[~is_prompt],
        output_offsets=np.concatenate(([0], np.cumsum(both - full))).astype(np.int64),
    )


# ---- classes


def batch_requests(dice: Dice, count: int, rate: float | None) -> Trace:
    """A batch job's requests, at random `rate` a second; None: all at once, a backlog."""
    gaps = np.zeros(count) if rate is None else dice.exponential(1 / rate, count)
    prompts = np.full(count, BATCH_PROMPT) + dice.integers(-200, 201, count)
    return of_class(alone("batch", np.cumsum(gaps), prompts, np.full(count, BATCH_RESPONSE)), BATCH)


def classes_workload(dice: Dice, chats: Trace) -> Trace:
    """These chats as interactive requests beside a batch job, over the same time."""
    count = max(1, int(BATCH_PER_TURN * len(chats)))
    rate = count / max(1e-9, chats.span_s) if len(chats) > 1 else 1.0
    job = batch_requests(dice, count, rate)
    return merged("classes", [of_class(chats, INTERACTIVE), job]).faster(1)


# ---- tenants


def documents_of(dice: Dice, requests: int, users: int, documents: int) -> Trace:
    """So many questions about so many documents of a tenant, of which `users` are open all the time."""
    blocks = DOCUMENT_TOKENS // BLOCK
    known = np.arange(documents * blocks, dtype=np.uint64).reshape(documents, blocks)
    next_id = known.size
    sessions: list[list[Turn]] = []
    for number in range(requests):
        prompt = DOCUMENT_TOKENS + int(dice.integers(*QUESTION_TOKENS))
        answer = int(dice.integers(*ANSWER_TOKENS))
        full, both = prompt // BLOCK, (prompt + answer) // BLOCK
        own = np.arange(next_id, next_id + both - blocks, dtype=np.uint64)
        next_id += len(own)
        stream = np.concatenate((known[int(dice.integers(documents))], own))
        sessions.append([Turn(prompt, answer, stream[:full], output_blocks=stream[full:], key=number)])
    return closed_loop("documents", BLOCK, sessions, min(users, requests), begin_s=1.0)


def light_requests(dice: Dice, seconds: float) -> Trace:
    """Requests at LIGHT_RATE that share nothing."""
    count = max(1, int(LIGHT_RATE * seconds))
    arrival = np.cumsum(dice.exponential(1 / LIGHT_RATE, count))
    inputs = dice.integers(*LIGHT_PROMPT, count)
    return of_tenant(alone(LIGHT, arrival, inputs, dice.integers(*ANSWER_TOKENS, count)), LIGHT)


def tenants_workload(dice: Dice, requests: int, users: int, documents: int = DOCUMENTS) -> Trace:
    """TENANTS with documents, the first of them with FLOOD_FACTOR as many requests open, and a light one.

    `requests`: of all with documents, twice as many of the flood as of each other.
    """
    each = max(1, requests // (TENANTS + 1))
    parts = [of_tenant(documents_of(dice, 2 * each, FLOOD_FACTOR * users, documents), FLOOD)]
    for number in range(1, TENANTS):
        parts.append(of_tenant(documents_of(dice, each, users, documents), f"tenant-{number}"))
    # The light one goes on for as long as the others may take, at a pace that a fleet of eight may have.
    parts.append(light_requests(dice, max(60.0, requests / 20)))
    return merged("tenants", parts).faster(1)
