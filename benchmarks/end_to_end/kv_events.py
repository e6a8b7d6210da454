#!/usr/bin/env python3
"""KV events heard by this router and by vllm-project/router: hits, CPU, a restarted worker, a lost batch.

    PYTHONPATH=build/release/python python benchmarks/end_to_end/kv_events.py --reference PATH

Each router stands in turn before the same four simulated workers, which publish KV events.

hits       share of the prompt tokens of conversations that came from a cache
CPU        of the router's process, per request
restarted  of 20 prompts that two workers hold, of which one then restarts, those that hit the other's cache
lost       of 20 prompts whose events were lost on the way to the router, those that hit the cache
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_router.testing import SimulatedWorker

Command = Callable[[list[SimulatedWorker], int], list[str]]

MODEL = "simulated-model"
PROMPTS = 20
TOKENS = 640
SETTLE = 3.0  # seconds, in which both hear of what happened


def complete(port: int, ids: list[int], tokens: int = 1) -> tuple[int, int]:
    """(tokens of the prompt, those of them that were cached)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"model": MODEL, "prompt": ids, "max_tokens": tokens})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"status {response.status}: {text[:200]!r}")
    usage = json.loads(text)["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def ids_of(number: int) -> list[int]:
    return [number * 1_000 + i for i in range(TOKENS)]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def conversations(port: int, threads: int, turns: int, seed: int) -> tuple[int, int, int]:
    """(requests, tokens of their prompts, cached ones): growing conversations, four on a common beginning."""
    totals = [0, 0, 0]
    lock = threading.Lock()

    def talk(number: int) -> None:
        rng = random.Random(seed * 1000 + number)
        ids = ids_of(seed * 1000 + number // 4)
        for turn in range(turns):
            ids = [*ids, *(rng.randrange(1 << 30) for _ in range(160))]
            prompt, cached = complete(port, ids, tokens=8)
            with lock:
                totals[0] += 1
                if turn:  # a first turn may have nothing to hit
                    totals[1] += prompt
                    totals[2] += cached

    talkers = [threading.Thread(target=talk, args=(number,)) for number in range(threads)]
    for talker in talkers:
        talker.start()
    for talker in talkers:
        talker.join()
    return totals[0], totals[1], totals[2]


def hits(port: int, prompts: range) -> int:
    return sum(complete(port, ids_of(number))[1] > 0 for number in prompts)


def after_a_restart(port: int, workers: list[SimulatedWorker], first: int) -> int:
    prompts = range(first, first + PROMPTS)
    for worker in workers[:2]:
        for number in prompts:
            complete(worker.port, ids_of(number))
    time.sleep(SETTLE)
    workers[0].restart_kv_events()
    complete(workers[0].port, ids_of(first + PROMPTS))  # its first batch
    time.sleep(SETTLE)
    return hits(port, prompts)


def after_a_loss(port: int, workers: list[SimulatedWorker], first: int) -> int:
    prompts = range(first, first + PROMPTS)
    workers[1].set_faults(kv_drop_batches=PROMPTS)
    for number in prompts:
        complete(workers[1].port, ids_of(number))
    workers[1].set_faults()
    complete(workers[1].port, ids_of(first + PROMPTS))  # a batch that shows the gap
    time.sleep(SETTLE)
    return hits(port, prompts)


@contextmanager
def workers_of(count: int) -> Iterator[list[SimulatedWorker]]:
    workers = [
        SimulatedWorker(speed=10, cache_blocks=20_000, kv_events_port=0, kv_events_replay_port=0)
        for _ in range(count)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop()


def ours(policy: str) -> Command:
    def command(workers: list[SimulatedWorker], port: int) -> list[str]:
        urls = [worker.url for worker in workers]
        module = [sys.executable, "-m", "vllm_router.launch_router"]
        return [
            *module,
            "--worker-urls",
            *urls,
            "--policy",
            policy,
            "--port",
            str(port),
            "--log-level",
            "warn",
        ]

    return command


def reference(path: str) -> Command:
    def command(workers: list[SimulatedWorker], port: int) -> list[str]:
        urls = [worker.url for worker in workers]
        named = [path, "--worker-urls", *urls, "--policy", "kv_aware", "--port", str(port)]
        named += ["--kv-event-model", MODEL]
        for worker in workers:
            named += ["--kv-event-source", f"{worker.url}=tcp://127.0.0.1:{worker.kv_events_port}"]
            named += [
                "--kv-event-replay-source",
                f"{worker.url}=tcp://127.0.0.1:{worker.kv_events_replay_port}",
            ]
        return named

    return command


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def wait_until_ready(port: int) -> None:
    for _ in range(300):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the router is not ready after 30 s")


def measure(name: str, command: Command, args: argparse.Namespace) -> None:
    with workers_of(4) as workers:
        port = free_port()
        environment = dict(os.environ)
        if name == "reference":
            environment.pop("PYTHONPATH", None)
        process = subprocess.Popen(
            command(workers, port), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until_ready(port)
            time.sleep(SETTLE)
            before = cpu_seconds(process.pid)
            requests, prompt, cached = conversations(port, args.conversations, args.turns, seed=1)
            cpu = cpu_seconds(process.pid) - before
            restarted = after_a_restart(port, workers, first=5_000)
            lost = after_a_loss(port, workers, first=6_000)
        finally:
            process.terminate()
            process.wait()
    print(
        f"| {name} | {cached / prompt:.1%} | {cpu / requests * 1e6:,.0f} us | "
        f"{restarted} of {PROMPTS} | {lost} of {PROMPTS} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", help="path of vllm-project/router's command; without it ours alone")
    parser.add_argument("--conversations", type=int, default=32, help="at once")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    routers = {"kv_aware": ours("kv_aware"), "auto": ours("auto")}
    if args.reference:
        routers["reference"] = reference(args.reference)
    print("| router | hits | CPU | restarted | lost |\n|---|---|---|---|---|")
    for _ in range(args.rounds):
        for name, command in routers.items():
            measure(name, command, args)


if __name__ == "__main__":
    main()
