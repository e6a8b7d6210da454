#!/usr/bin/env python3
"""Many requests through a fleet that misbehaves: is anything lost, leaked or left behind?

    PYTHONPATH=build/release/python python benchmarks/end_to_end/soak.py         200,000 requests, minutes
    ... soak.py --requests 5000 --seconds 30 --seed 7                            a quick look

Clients ask for whole answers and for streams; some leave at a random step, some read slowly. Meanwhile
workers crash (their connections are reset), come back under the same address, answer 503 or hang up for a
while, and are removed and added; at any moment all but one serve. At the end the router must rest: no load,
no exchange in flight, every descriptor closed, memory flat, each exchange counted once. A request is *lost*
when its client, who stayed, got an error although nothing of an answer had come: a retry could have saved
it. Ends with status 1 if one was, or if anything was left behind.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import random
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from vllm_router import Router
from vllm_router.testing import SimulatedWorker

FAST: dict[str, Any] = {"model": "sim", "engine": "instant", "step_ms": 0.3}
CLIENT_TIMEOUT = 60.0  # far beyond what any answer takes here: reaching it is a hang
Counts = collections.Counter


class CutError(Exception):
    """The connection ended in the middle of an answer."""


class Client:
    """A client on one connection, which it opens again when it has ended."""

    def __init__(self, port: int, dice: random.Random) -> None:
        self.port, self.dice = port, dice
        self.sock: socket.socket | None = None
        self.ahead = b""

    def ask(self, counts: Counts[str]) -> None:
        kind = self.dice.choices(("whole", "stream", "leaves", "slow"), (60, 25, 10, 5))[0]
        body = json.dumps(
            {
                "model": "sim",
                "stream": kind in ("stream", "slow") or self.dice.random() < 0.5,
                "max_tokens": self.dice.randrange(1, 30),
                "prompt": f"{self.dice.randrange(1000)} " * self.dice.randrange(1, 200),
            }
        ).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        whole = head + body
        try:
            sock = self.connected()
            if kind == "leaves" and self.dice.random() < 0.3:
                sock.sendall(whole[: self.dice.randrange(1, len(whole))])
                return self.leave(counts)
            sock.sendall(whole)
            if kind == "leaves" and self.dice.random() < 0.5:
                return self.leave(counts)
            status, fields = self.read_head()
            counts["begun"] += 1
            if kind == "leaves":
                return self.leave(counts)
            body = self.read_body(fields, slowly=kind == "slow")
            counts[f"status {status}"] += 1
            if status != 200:
                counts["lost"] += 1
                counts[f"lost {json.loads(body)['error']['message']}"] += 1
        except CutError:
            self.close()
            counts["cut"] += 1
        except TimeoutError:
            self.close()
            counts["hung"] += 1
        except OSError:  # before a byte of an answer: the router would have said why
            self.close()
            counts["lost"] += 1

    def connected(self) -> socket.socket:
        if self.sock is None:
            self.sock = socket.create_connection(("127.0.0.1", self.port), timeout=CLIENT_TIMEOUT)
            self.ahead = b""
        return self.sock

    def leave(self, counts: Counts[str]) -> None:
        counts["left"] += 1
        self.close()

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
        self.sock = None

    def more(self, begun: bool) -> None:
        assert self.sock is not None
        try:
            data = self.sock.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            raise CutError if begun else ConnectionError
        self.ahead += data

    def read_until(self, mark: bytes, begun: bool = True) -> bytes:
        while mark not in self.ahead:
            self.more(begun)
        piece, _, self.ahead = self.ahead.partition(mark)
        return piece

    def read_head(self) -> tuple[int, dict[str, str]]:
        lines = self.read_until(b"\r\n\r\n", begun=False).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]), fields

    def take(self, size: int) -> bytes:
        while len(self.ahead) < size:
            self.more(begun=True)
        taken, self.ahead = self.ahead[:size], self.ahead[size:]
        return taken

    def read_body(self, fields: dict[str, str], slowly: bool) -> bytes:
        if "content-length" in fields:
            return self.take(int(fields["content-length"]))
        while size := int(self.read_until(b"\r\n"), 16):
            self.take(size + 2)
            if slowly:
                time.sleep(0.002)
        return self.take(2)


class Fleet:
    """Workers, one of which at a time is in trouble."""

    def __init__(self, size: int) -> None:
        self.workers = [SimulatedWorker(**FAST) for _ in range(size)]
        self.urls = [worker.url for worker in self.workers]
        self.done: Counts[str] = Counts()

    def trouble(self, router: Router, server: Any, dice: random.Random, stop: threading.Event) -> None:
        while not stop.is_set():
            at = dice.randrange(len(self.workers))
            kind = dice.choice(("crash", "503", "hang up", "replace"))
            pause = dice.uniform(0.1, 0.6)
            self.done[kind] += 1
            if kind == "crash":
                port = self.workers[at].port
                self.workers[at].stop()
                stop.wait(pause)
                self.workers[at] = SimulatedWorker(port=port, **FAST)
            elif kind == "replace":
                router.remove_worker(self.urls[at])
                stop.wait(pause)
                router.add_worker(self.urls[at])
            else:
                fault: dict[str, Any] = {"status_code": 503} if kind == "503" else {"close_after_bytes": 0}
                self.workers[at].set_faults(**fault)
                stop.wait(pause)
                self.workers[at].set_faults()
            self._wait_until_well(router, server, stop)

    def _wait_until_well(self, router: Router, server: Any, stop: threading.Event) -> None:
        """One at a time: the next trouble comes when the fleet is whole."""
        deadline = time.monotonic() + 20
        while not stop.is_set() and time.monotonic() < deadline:
            breakers = metric(server.metrics(), "cb_state{")
            if breakers == 0 and all(worker.healthy for worker in router.workers):
                return
            stop.wait(0.05)

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()


def memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def metric(text: str, name: str) -> float:
    return sum(
        float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"vllm_router_{name}")
    )


def rests(router: Router, server: Any, patience: float = 20.0) -> bool:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        loads = [
            (worker.load, worker.queued_prefill_tokens, worker.expected_output_tokens, worker.context_tokens)
            for worker in router.workers
        ]
        if not any(map(any, loads)) and metric(server.metrics(), "in_flight") == 0:
            return True
        time.sleep(0.02)
    return False


def run(args: argparse.Namespace) -> dict[str, Any]:
    fleet = Fleet(args.workers)
    before_descriptors = descriptors()
    router = Router(worker_urls=fleet.urls, policy=args.policy)
    server = router.serve(
        threads=2,
        health_check_interval_secs=1,
        slow_start_secs=1,
        cb_timeout_duration_secs=0.5,
        retry_initial_backoff_ms=5,
        retry_budget=2.0,  # the question is what retries can save, not what an outage costs
        log_level="error",
    )
    port = server.port
    counts: Counts[str] = Counts()
    lock = threading.Lock()
    left = [args.requests]
    stop = threading.Event()
    deadline = time.monotonic() + args.seconds

    def clients(number: int) -> None:
        dice = random.Random(args.seed * 1000 + number)
        client = Client(port, dice)
        mine: Counts[str] = Counts()
        while time.monotonic() < deadline:
            with lock:
                if left[0] <= 0:
                    break
                left[0] -= 1
            client.ask(mine)
            mine["asked"] += 1
        client.close()
        with lock:
            counts.update(mine)

    began = time.monotonic()
    trouble = threading.Thread(target=fleet.trouble, args=(router, server, random.Random(args.seed), stop))
    threads = [threading.Thread(target=clients, args=(number,)) for number in range(args.clients)]
    for thread in (trouble, *threads):
        thread.start()
    early: int | None = None
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.1)
        if early is None and left[0] < args.requests * 0.7:
            early = memory()
    took = time.monotonic() - began
    late = memory()
    stop.set()
    trouble.join()

    rested = rests(router, server)
    text = server.metrics()
    result: dict[str, Any] = {
        "requests": counts["asked"],
        "seconds": round(took, 1),
        "outcomes": {name: count for name, count in sorted(counts.items()) if name != "asked"},
        "troubles": dict(sorted(fleet.done.items())),
        "retries": int(metric(text, "retries_total")),
        "breaker_moves": int(metric(text, "cb_state_transitions_total")),
        "exchanges": int(metric(text, "exchange_end_total")),
        "lost": counts["lost"],
        "hung": counts["hung"],
        "rested": rested,
        "memory_at_30_percent": early,
        "memory_at_the_end": late,
    }
    result["exchanges_cut_at_stop"] = server.stop()
    del server, router
    fleet.stop()
    deadline = time.monotonic() + 10
    while descriptors() > before_descriptors and time.monotonic() < deadline:
        time.sleep(0.05)
    result["descriptors_left"] = max(0, descriptors() - before_descriptors)
    return result


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=900, help="the longest it may take")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--policy", default="least_load")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    result = run(args)
    print(json.dumps(result, indent=2))
    wrong = []
    if result["lost"]:
        wrong.append(f"{result['lost']} requests were lost")
    if result["hung"]:
        wrong.append(f"{result['hung']} requests hung")
    if not result["rested"]:
        wrong.append("load or exchanges were left")
    if result["descriptors_left"]:
        wrong.append(f"{result['descriptors_left']} descriptors were left")
    if result["exchanges_cut_at_stop"]:
        wrong.append(f"{result['exchanges_cut_at_stop']} exchanges were cut at the end")
    for sentence in wrong:
        print(f"soak.py: {sentence} (--seed {args.seed})", file=sys.stderr)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
