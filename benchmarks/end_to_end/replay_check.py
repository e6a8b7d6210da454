"""Does the replay tell the truth? The same small trace through a real server, in real time.

    python benchmarks/end_to_end/replay_check.py                       chats of the repository, six policies
    python benchmarks/end_to_end/replay_check.py trace.jsonl --rate 2  another one

A server and simulated workers run on loopback; each prompt is a text whose blocks are equal where the trace's
blocks are. Workers run the replay's engine, `--speed` times as fast as usual, and so are the arrivals. The
share of prompt tokens that the workers found in their caches must be within two points of the replay's.

Neither is one number. In real time a request comes a few milliseconds late, some change places, and a policy
that looks at loads decides differently: each play is off by about a point, this way or that. So the mean of a
few plays is compared with the mean of a few replays whose arrivals are as late.

Exit status: 0 when all are, 1 when one is not, 2 for a mistake.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vllm_router import Router
from vllm_router.replay import Fleet, PolicySpec, Trace, TraceError, parse_policies, read_trace, run
from vllm_router.settings.policies import BLOCK_POLICIES
from vllm_router.testing import SimulatedWorker

CHATS = Path(__file__).parents[2] / "tests" / "data" / "mooncake_conversation_chats.jsonl"
POLICIES = ("round_robin", "least_load", "consistent_hash", "vllm_cache_aware", "cache_aware", "auto")
BYTES_PER_TOKEN = 4  # of the simulated worker, and of the router's estimate
POINTS = 2.0
REPLAYS = 8
LATE_S = 0.01  # what a client's threads and sockets may add to an arrival, in real time


def comparable(trace: Trace, rate: float) -> Trace:
    """The trace with full blocks only: text that is not a full block is never found in a cache."""
    full = np.minimum(np.diff(trace.block_offsets), trace.input_tokens // trace.block_size)
    keep = [trace.blocks(request)[: full[request]] for request in range(len(trace))]
    offsets = np.zeros(len(trace) + 1, np.int64)
    np.cumsum(full, out=offsets[1:])
    changes = {"block_ids": np.concatenate(keep), "block_offsets": offsets}
    return type(trace)(**{**vars(trace), **changes}).at_rate(rate)


def late(trace: Trace, seconds: float, seed: int) -> Trace:
    """Each request by up to so many seconds later, as it happens to real ones."""
    times = trace.arrival_s + np.random.default_rng(seed).uniform(0, seconds, len(trace))
    order = np.argsort(times, kind="stable")
    return dataclasses.replace(trace.take(order), arrival_s=times[order])


def prompt_of(trace: Trace, request: int) -> str:
    """A text of as many tokens, whose blocks are as equal to others' as the trace's are."""
    size = trace.block_size * BYTES_PER_TOKEN
    blocks = [(f"{block:015x} " * (size // 16 + 1))[:size] for block in trace.blocks(request).tolist()]
    rest = int(trace.input_tokens[request]) * BYTES_PER_TOKEN - size * len(blocks)
    return "".join(blocks) + (f"own{request:012d} " * (rest // 16 + 1))[:rest]


class Client:
    """Sends requests when they are due, each on a connection that is free."""

    def __init__(self, port: int, trace: Trace, speed: float) -> None:
        self._port = port
        self._trace = trace
        self._speed = speed
        self._connections = threading.local()
        self._opened: list[http.client.HTTPConnection] = []
        self.failed = 0

    def play(self) -> None:
        """All of them; returns when the last has its answer."""
        bodies = [self._body(request) for request in range(len(self._trace))]
        due = time.monotonic() + (self._trace.arrival_s - self._trace.arrival_s[0]) / self._speed
        with concurrent.futures.ThreadPoolExecutor(128) as pool:
            answers = []
            for request, (at, body) in enumerate(zip(due, bodies, strict=True)):
                time.sleep(max(0.0, at - time.monotonic()))
                answers.append(pool.submit(self._ask, request, body))
            self.failed = sum(answer.result() != 200 for answer in answers)
        for connection in self._opened:
            connection.close()

    def _body(self, request: int) -> bytes:
        answer = int(self._trace.output_tokens[request])
        # Streamed, so that the router sees first tokens as it does in the replay.
        body = {"prompt": prompt_of(self._trace, request), "max_tokens": answer, "stream": True}
        return json.dumps(body).encode()

    def _ask(self, request: int, body: bytes) -> int:
        connection = getattr(self._connections, "it", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
            self._connections.it = connection
            self._opened.append(connection)
        headers = {"Content-Type": "application/json"}
        if self._trace.session_ids is not None:
            headers["X-Session-ID"] = str(self._trace.session_ids[request])
        connection.request("POST", "/v1/completions", body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def measured_share(trace: Trace, spec: PolicySpec, fleet: Fleet, speed: float) -> float:
    """Share of the prompt tokens that the workers found in their caches."""
    settings = {
        "engine": fleet.engine,
        "speed": speed,
        "max_model_len": 1 << 20,
        "block_tokens": trace.block_size,
        "cache_blocks": fleet.cache_blocks(trace),
        "keep_alive_s": 300.0,
    }
    options = spec.as_core(trace.block_size, fleet.cache_blocks(trace), 1)
    policy = options.pop("policy")
    known = {name: value for name, value in options.items() if value is not None}
    if policy not in BLOCK_POLICIES:
        for name in ("block_size", "max_blocks_per_worker"):
            known.pop(name)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(SimulatedWorker(**settings)) for _ in range(fleet.workers)]
        router = Router(policy, [worker.url for worker in workers], **known)
        server = stack.enter_context(router.serve(log_level="warning"))
        client = Client(server.port, trace, speed)
        client.play()
        if client.failed:
            raise TraceError(f"{client.failed} requests were not answered with 200")
        stats = [worker.stats() for worker in workers]
    return sum(s["cached_tokens"] for s in stats) / max(1, sum(s["prompt_tokens"] for s in stats))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add(
        "trace",
        nargs="?",
        default=str(CHATS),
        help="a file that `vllm-router replay` reads; default: some chats",
    )
    add("--policy", nargs="+", default=list(POLICIES))
    add("--workers", type=int, default=4)
    add("--cache-tokens", type=int, default=100_000, help="of each worker; default: 100000")
    add("--rate", type=float, default=2.0, help="requests a second at speed 1; default: 2")
    add("--speed", type=float, default=20.0, help="how much faster everything is; default: 20")
    add("--repeat", type=int, default=3, help="real plays, whose mean is compared; default: 3")
    add("--limit", type=int, help="only so many requests")
    options = parser.parse_args(argv)
    try:
        if not 0 < options.speed <= 1000:
            raise TraceError(f"--speed is {options.speed:g}; it must be above 0 and at most 1000")
        if options.repeat < 1:
            raise TraceError(f"--repeat is {options.repeat}; it must be 1 or more")
        trace = comparable(read_trace(options.trace, limit=options.limit, seed=1), options.rate)
        fleet = Fleet(workers=options.workers, cache_tokens=options.cache_tokens)
        specs = parse_policies(options.policy)
        headings = " ".join(f"{name:>8}" for name in ("replay", "real", "apart", "replays", "plays"))
        print(f"{'policy':24} {headings}   % of prompt tokens")
        far = 0
        for spec in specs:
            rows = run(
                lambda seed: late(trace, LATE_S * options.speed, seed),
                [spec],
                fleet,
                rate=options.rate,
                seeds=REPLAYS,
            )
            replays = [100 * row["hit_share"] for row in rows]
            plays = [100 * measured_share(trace, spec, fleet, options.speed) for _ in range(options.repeat)]
            expected, measured = statistics.mean(replays), statistics.mean(plays)
            apart = abs(measured - expected)
            far += apart > POINTS
            verdict = "" if apart <= POINTS else f"   more than {POINTS:g} points"
            means = f"{expected:8.2f} {measured:8.2f} {apart:8.2f}"
            deviations = f"{statistics.pstdev(replays):7.2f}σ {statistics.pstdev(plays):7.2f}σ"
            print(f"{spec.label:24} {means} {deviations}{verdict}", flush=True)
    except TraceError as error:
        parser.error(str(error))
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
