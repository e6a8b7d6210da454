#!/usr/bin/env python3
"""People who chat beside a batch job, over HTTP: what do priority classes change, and what do they cost?

    PYTHONPATH=build/release/python:. .venv/bin/python benchmarks/share_a_fleet.py
    ... benchmarks/share_a_fleet.py --seconds 120 --users 60 --flood 96 --arms alone fifo classes

Each arm has simulated workers of its own, which take the time that an engine would (h200_32b, 320,000 tokens
of KV cache each), and a router before them. Users chat: a turn, the response, a pause, the next turn, which
has all before it. A batch job keeps so many prompts of 3,000 words under way, all different, each with 400
tokens of response. Of the arms `alone` has users only, `fifo` both without classes, and `classes` both with
--admission-config. Rows are of the time after the first third, in which caches fill.

The processor has to be idle: times are those of the workers, and of a client in Python.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from vllm_router import Router
from vllm_router.testing import SimulatedWorker

CLASSES = "classes: [{name: interactive}, {name: default}, {name: batch}]\n"
TURNS, SYSTEM_WORDS, TURN_WORDS, RESPONSE_TOKENS = 8, 600, 80, 120
BATCH_WORDS, BATCH_TOKENS = 3_000, 400
PAUSE_S = 6.0


@dataclasses.dataclass
class Response:
    """What a client saw of one, in seconds of the run's clock."""

    ended: float
    first_token_s: float
    token_s: float
    tokens: int
    cached: float


@dataclasses.dataclass
class Arm:
    """One run."""

    port: int
    deadline: float
    users: list[Response] = dataclasses.field(default_factory=list)
    batch: list[Response] = dataclasses.field(default_factory=list)
    errors: int = 0


def words(rng: random.Random, count: int) -> str:
    return " ".join(f"{rng.randrange(100_000):05d}"[:4] for _ in range(count))


async def ask(arm: Arm, of_class: str, messages: list[dict[str, str]], tokens: int) -> Response | None:
    """One streamed chat completion; None: it was rejected."""
    body = json.dumps(
        {
            "model": "simulated-model",
            "messages": messages,
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", arm.port)
    began, first, last, usage = time.monotonic(), None, 0.0, None
    try:
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            + f"x-smg-priority: {of_class}\r\nConnection: close\r\n".encode()
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        async for line in reader:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if any("content" in choice.get("delta", {}) for choice in event["choices"]):
                last = time.monotonic()
                first = last if first is None else first
            usage = event.get("usage") or usage
    finally:
        writer.close()
    if first is None or usage is None:
        arm.errors += 1
        return None
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    made = usage["completion_tokens"]
    pace = (last - first) / max(1, made - 1)
    return Response(last, first - began, pace, made, cached / usage["prompt_tokens"])


async def chat(arm: Arm, number: int) -> None:
    rng = random.Random(number)
    await asyncio.sleep(rng.uniform(0, PAUSE_S))
    while time.monotonic() < arm.deadline:
        messages = [{"role": "system", "content": words(rng, SYSTEM_WORDS)}]
        for _ in range(TURNS):
            messages.append({"role": "user", "content": words(rng, TURN_WORDS)})
            response = await ask(arm, "interactive", messages, RESPONSE_TOKENS)
            if response is not None:
                arm.users.append(response)
            messages.append({"role": "assistant", "content": words(rng, RESPONSE_TOKENS)})
            await asyncio.sleep(rng.expovariate(1 / PAUSE_S))
            if time.monotonic() >= arm.deadline:
                return


async def flood(arm: Arm, number: int) -> None:
    rng = random.Random(10_000 + number)
    while time.monotonic() < arm.deadline:
        prompt = [{"role": "user", "content": words(rng, BATCH_WORDS)}]
        response = await ask(arm, "batch", prompt, BATCH_TOKENS)
        if response is not None:
            arm.batch.append(response)


async def drive(arm: Arm, users: int, batch: int) -> None:
    clients = [chat(arm, number) for number in range(users)] + [flood(arm, number) for number in range(batch)]
    tasks = [asyncio.create_task(client) for client in clients]
    await asyncio.sleep(max(0.0, arm.deadline - time.monotonic()))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def fleet(workers: int, has_classes: bool) -> Iterator[int]:
    """The port of a router before fresh workers."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        simulated = [
            stack.enter_context(SimulatedWorker(engine="h200_32b", cache_blocks=20_000))
            for _ in range(workers)
        ]
        (folder / "classes.yaml").write_text(CLASSES)
        options = {"admission_config": str(folder / "classes.yaml")} if has_classes else {}
        router = Router("auto", [worker.url for worker in simulated])
        server = router.serve(threads=1, trusted_addresses=["127.0.0.1"], **options)
        try:
            yield server.port
        finally:
            server.stop(grace_secs=0)


def row(name: str, arm: Arm, begin: float, end: float) -> str:
    users = [one for one in arm.users if one.ended >= begin]
    batch = [one for one in arm.batch if one.ended >= begin]
    waits = np.array([one.first_token_s for one in users] or [np.nan])
    tokens = sum(one.tokens for one in users + batch) / (end - begin)
    cells = (
        name,
        str(len(users)),
        f"{np.percentile(waits, 50):.3f}",
        f"{np.percentile(waits, 99):.2f}",
        f"{1000 * np.mean([one.token_s for one in users] or [np.nan]):.0f}",
        f"{np.mean([one.cached for one in users] or [np.nan]):.2f}",
        f"{len(batch) / (end - begin):.2f}",
        f"{tokens:.0f}",
        str(arm.errors),
    )
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", nargs="+", default=("alone", "fifo", "classes"), metavar="ARM")
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--workers", type=int, default=4, metavar="N")
    parser.add_argument("--users", type=int, default=48, metavar="N")
    parser.add_argument("--flood", type=int, default=96, metavar="N", help="batch requests under way")
    args = parser.parse_args(argv)
    print(
        "| arm | turns | first token p50 s | p99 s | ms per token | prompt cached | batch/s | output tokens/s"
        " | errors |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for name in args.arms:
        with fleet(args.workers, has_classes=name == "classes") as port:
            begin = time.monotonic()
            arm = Arm(port, begin + args.seconds)
            asyncio.run(drive(arm, args.users, 0 if name == "alone" else args.flood))
            print(row(name, arm, begin + args.seconds / 3, arm.deadline), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
