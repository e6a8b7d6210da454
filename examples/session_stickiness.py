"""What is a session id worth? The same chats under two policies, over fresh simulated workers each time.

Prints what the workers found in their prefix caches and how long users waited for the first token.
"""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from vllm_router import Router
from vllm_router.testing import SimulatedWorker

if TYPE_CHECKING:
    from vllm_router.option_types import PolicyName

WORKERS, USERS, TURNS = 3, 6, 5
# A prompt token that is not cached costs 0.1 ms, as on a worker that prefills 10,000 tokens a second.
ENGINE = {"step_ms": 0.5, "prefill_us_per_token": 100}
QUESTION = "And what did the people who lived there then think of it, as far as their letters tell us? " * 3


class Result(NamedTuple):
    policy: str
    prompt_tokens: int
    cached_tokens: int
    ttft_ms: list[float]


def chat(port: int, user: str) -> list[float]:
    """A conversation: each turn sends everything said so far. Returns the waits for the first token."""
    waits: list[float] = []
    messages: list[dict[str, str]] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/json", "X-Session-ID": user}
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"{user} asks, turn {turn}: {QUESTION}"})
        body = json.dumps({"messages": messages, "max_tokens": 32, "stream": True})
        begun = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        answer.readline()  # the first event
        waits.append((time.perf_counter() - begun) * 1e3)
        events = [line[6:] for line in answer.read().splitlines() if line.startswith(b"data: {")]
        parts = [event["choices"][0]["delta"] for event in map(json.loads, events) if event["choices"]]
        messages.append({"role": "assistant", "content": "".join(part.get("content", "") for part in parts)})
    connection.close()
    return waits


def measure(policy: PolicyName) -> Result:
    workers = [SimulatedWorker(**ENGINE) for _ in range(WORKERS)]
    try:
        router = Router(policy=policy, worker_urls=[worker.url for worker in workers], seed=1)
        with router.serve(port=0, log_level="warn") as server, ThreadPoolExecutor(USERS) as users:
            together = threading.Barrier(USERS)

            def converse(user: int) -> list[float]:
                together.wait()
                return chat(server.port, f"user-{user}")

            waits = [wait for waits in users.map(converse, range(USERS)) for wait in waits]
        stats = [worker.stats() for worker in workers]
    finally:
        for worker in workers:
            worker.stop()
    assert sum(each["finished"] for each in stats) == USERS * TURNS
    return Result(
        policy,
        sum(each["prompt_tokens"] for each in stats),
        sum(each["cached_tokens"] for each in stats),
        waits,
    )


def main() -> None:
    print(f"{USERS} users, {TURNS} turns each, {WORKERS} workers")
    results = {"random": measure("random"), "consistent_hash": measure("consistent_hash")}
    for result in results.values():
        share = result.cached_tokens / result.prompt_tokens
        median = statistics.median(result.ttft_ms)
        print(
            f"{result.policy:16} {share:5.0%} of the prompt tokens cached, first token after {median:4.0f} ms"
        )
    assert results["consistent_hash"].cached_tokens > results["random"].cached_tokens


if __name__ == "__main__":
    main()
