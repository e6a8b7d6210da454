#!/usr/bin/env python3
"""A worker is killed in the middle of a thousand streams: what does each client get, and how long nothing?

    PYTHONPATH=build/release/python:. python benchmarks/continued_streams.py
    ... continued_streams.py --kills 2 --json figures.json      # a second worker, later
    ... continued_streams.py --continue-streams off             # what the same costs without

Simulated workers, each a process, stand behind one router, which shares the streams out in turn. Once every
stream has `--events-before` events, a worker gets SIGKILL. Each response is compared with that of a worker
without a router, byte for byte but for the time of its creation and the name of the worker that ended it:

    whole   equal, and it has its end
    cut     the beginning of it, without an end: what a client got before there was this feature
    wrong   anything else

Kinds of requests that repeat themselves (temperature 0 or a seed; grammars and several choices among them)
are to be whole. `--sampled` further streams neither have temperature 0 nor a seed; those of the killed worker
are to be cut. The gap is the longest time without a byte of a stream that went on. A second run generates
what the client has once more, at the same pace, and nothing makes that faster.

Ends with status 1 if a response is wrong, if one kill cuts a stream that repeats itself, or if a sampled one
goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pairs import Kind, free_port, kinds_of, router
from vllm_router.testing import SimulatedWorker

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
# By kind: path and members of the request. The first ones are used more often.
REPEATING: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": (COMPLETIONS, {"temperature": 0}),
    "chat": (CHAT, {"temperature": 0}),
    "seed": (CHAT, {"temperature": 0.8, "seed": 7}),
    "n = 2": (CHAT, {"temperature": 0, "n": 2}),
    "grammar": (CHAT, {"temperature": 0, "response_format": SCHEMA}),
}
SHARES = ("completion", "chat", "completion", "chat", "seed", "completion", "chat", "n = 2", "grammar")
SAMPLED: dict[str, tuple[str, dict[str, Any]]] = {
    "sampled": (COMPLETIONS, {"temperature": 0.8}),
    "sampled, n = 2": (CHAT, {"n": 2}),
    "sampled, grammar": (CHAT, {"temperature": 0.8, "response_format": SCHEMA}),
}
ROW = "| {:18} | {:>7} | {:>9} | {:>5} | {:>3} | {:>5} |"
PATIENCE_S = 120.0


@dataclasses.dataclass(frozen=True)
class Stream:
    """What is asked for."""

    number: int
    kind: str
    tokens: int

    @property
    def repeats(self) -> bool:
        return self.kind in REPEATING

    def request(self) -> bytes:
        path, members = (REPEATING | SAMPLED)[self.kind]
        text = f"Stream {self.number} tells of the sea."
        asked = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
        body = json.dumps(
            {
                "model": "simulated-model",
                "max_tokens": self.tokens,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
                **asked,
                **members,
            }
        ).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"X-Request-Id: stream-{self.number}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Client(asyncio.Protocol):
    """One stream on a connection of its own, with the time of each piece."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.pieces: list[tuple[float, bytes]] = []
        self.events = 0
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self.stream.request())

    def data_received(self, data: bytes) -> None:
        self.pieces.append((time.monotonic(), data))
        self.events += data.count(b"data: ")

    def connection_lost(self, _error: Exception | None) -> None:
        self.over.set_result(None)

    def head(self) -> str:
        return b"".join(data for _, data in self.pieces).partition(b"\r\n\r\n")[0].decode()

    def worker(self) -> str:
        """The first one, as the router says."""
        found = re.search(r"(?im)^x-vllm-router-worker: (\S+)", self.head())
        return found[1] if found else ""

    def body(self) -> tuple[bytes, bool]:
        """Without its framing, and whether it has its end."""
        rest = b"".join(data for _, data in self.pieces).partition(b"\r\n\r\n")[2]
        body = bytearray()
        while (end := rest.find(b"\r\n")) > 0:
            size = int(rest[:end], 16)
            if size == 0:
                return bytes(body), True
            body += rest[end + 2 : end + 2 + size]
            rest = rest[end + 2 + size + 2 :]
        return bytes(body), False

    def gap(self) -> float:
        """The longest time between two pieces that have events."""
        times = [at for at, data in self.pieces if b"data: " in data or data.endswith(b"0\r\n\r\n")]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)


def comparable(body: bytes) -> bytes:
    """Without what tells of the clock, and of which worker ended it. A response has one time of creation."""
    if len(set(re.findall(rb'"created":\d+', body))) > 1:
        return b"two times of creation"
    body = re.sub(rb'"created":\d+', b'"created":0', body)
    return re.sub(rb'"system_fingerprint":"[^"]*"', b'"system_fingerprint":""', body)


def outcome(client: Client, undisturbed: bytes) -> str:
    """whole, cut or wrong."""
    body, has_end = client.body()
    body = re.sub(rb": keep-alive\n\n", b"", body)
    if not client.head().startswith("HTTP/1.1 200"):
        return "wrong"
    if has_end:
        return "whole" if comparable(body) == undisturbed else "wrong"
    whole_events = body[: body.rfind(b"\n\n") + 2] if b"\n\n" in body else b""
    return "cut" if undisturbed.startswith(comparable(whole_events)) else "wrong"


# ---- the machines


class Worker:
    """A simulated worker that can be killed."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vllm_router.simulate_worker", "--port", "0", *flags],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("simulated worker on "):
            raise RuntimeError("a simulated worker did not start")
        self.url = line.split()[-1]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def workers(count: int, *flags: str) -> Iterator[list[Worker]]:
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(Worker(*flags))
            stack.callback(made[-1].stop)
        yield made


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text: str = response.read().decode()
        return text


def counts(page: str, name: str) -> dict[str, float]:
    """A metric by its label `why`; those that are not 0. A stream has one method in this run."""
    labels = r'(?:{why="(\w+)"(?:,method="\w+")?})?'
    found = re.findall(rf"^vllm_router_{name}{labels} (\S+)$", page, re.MULTILINE)
    return {why: float(count) for why, count in found if float(count)}


def load_of(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/workers", timeout=10) as response:
        return sum(worker["load"] for worker in json.load(response)["workers"])


# ---- the run


def streams_of(options: argparse.Namespace) -> list[Stream]:
    """In an order in which each worker gets some of each kind."""
    names, sampled = itertools.cycle(SHARES), itertools.cycle(SAMPLED)
    kinds = [next(names) for _ in range(options.streams)] + [next(sampled) for _ in range(options.sampled)]
    random.Random(1).shuffle(kinds)
    return [Stream(number, kind, options.tokens) for number, kind in enumerate(kinds)]


async def undisturbed(port: int, streams: Sequence[Stream]) -> list[bytes]:
    """What a worker that takes no time responds to each, a hundred at a time."""
    bodies: list[bytes] = []
    for at in range(0, len(streams), 100):
        clients = [await open_client(port, stream) for stream in streams[at : at + 100]]
        await asyncio.wait_for(asyncio.gather(*(client.over for client in clients)), PATIENCE_S)
        for client in clients:
            body, has_end = client.body()
            if not has_end:
                raise RuntimeError(f"no undisturbed response: {client.head()}")
            bodies.append(comparable(body))
    return bodies


async def open_client(port: int, stream: Stream) -> Client:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Client(stream), "127.0.0.1", port)
    return client


async def kill_in_the_middle(
    port: int, streams: Sequence[Stream], fleet: Sequence[Worker], options: argparse.Namespace
) -> tuple[list[Client], list[float]]:
    """All clients, when theirs is over; and the times of the kills."""
    clients = [await open_client(port, stream) for stream in streams]
    deadline = time.monotonic() + PATIENCE_S
    while min(client.events for client in clients) < options.events_before:
        if time.monotonic() > deadline or any(client.over.done() for client in clients):
            raise RuntimeError("streams ended before all had begun; use more --tokens or a longer --step-ms")
        await asyncio.sleep(0.005)
    killed = []
    for number, worker in enumerate(fleet[: options.kills]):
        if number > 0:
            await asyncio.sleep(options.between)
        killed.append(time.monotonic())
        worker.process.send_signal(signal.SIGKILL)
    await asyncio.wait_for(asyncio.gather(*(client.over for client in clients)), PATIENCE_S)
    return clients, killed


def quantiles(gaps: Sequence[float]) -> dict[str, float]:
    if not gaps:
        return {}
    return {
        "p50": float(np.percentile(gaps, 50)),
        "p99": float(np.percentile(gaps, 99)),
        "max": max(gaps),
    }


def figures_of(
    clients: Sequence[Client], bodies: Sequence[bytes], killed: Sequence[str], page: str, left: int
) -> dict[str, Any]:
    """Outcomes by kind, gaps in seconds, and what the router counts."""
    found: dict[str, Counter[str]] = {}
    gaps: dict[str, list[float]] = {"went on": [], "others": []}
    wrong = []
    went_on_sampled = 0
    for client, body in zip(clients, bodies, strict=True):
        kind = found.setdefault(client.stream.kind, Counter())
        what = outcome(client, body)
        was_killed = client.worker() in killed
        kind.update({"streams": 1, "of killed": was_killed, what: 1})
        if what == "wrong":
            wrong.append(client.stream.number)
        if what == "whole":
            gaps["went on" if was_killed else "others"].append(client.gap())
            went_on_sampled += was_killed and not client.stream.repeats
    return {
        "kinds": {name: dict(found[name]) for name in (*REPEATING, *SAMPLED) if name in found},
        "wrong": wrong,
        "sampled_that_went_on": went_on_sampled,
        "gap_seconds": {name: quantiles(each) for name, each in gaps.items()},
        "streams_continued_total": counts(page, "streams_continued_total"),
        "streams_cut_total": counts(page, "streams_cut_total"),
        "continue_memory_bytes": counts(page, "continue_memory_bytes").get("", 0.0),
        "load_left": left,
    }


def print_figures(figures: dict[str, Any], options: argparse.Namespace) -> None:
    print(ROW.format("kind", "streams", "of killed", "whole", "cut", "wrong"))
    print("|" + "|".join(["---"] * 6) + "|")
    total: Counter[str] = Counter()
    for kind, row in figures["kinds"].items():
        total.update(row)
        print(ROW.format(kind, *(row.get(n, 0) for n in ("streams", "of killed", "whole", "cut", "wrong"))))
    print(ROW.format("all", *(total[n] for n in ("streams", "of killed", "whole", "cut", "wrong"))))
    print()
    for name, gap in figures["gap_seconds"].items():
        said = ", ".join(f"{key} {value:.2f} s" for key, value in gap.items()) or "none"
        print(f"longest gap of a whole stream, {name}: {said}")
    again = options.events_before * options.step_ms / 1e3
    print(f"of it, to generate once more what a client had: {again:.1f} s or more")
    for name in ("streams_continued_total", "streams_cut_total", "continue_memory_bytes", "load_left"):
        print(f"{name}: {figures[name] or 0}")


def is_good(figures: dict[str, Any], options: argparse.Namespace) -> bool:
    if figures["wrong"] or figures["sampled_that_went_on"] or figures["load_left"]:
        return False
    if options.kills > 1 or options.continue_streams == "off":
        return True
    return not any(row.get("cut") for kind, row in figures["kinds"].items() if kind in REPEATING)


def run(options: argparse.Namespace) -> dict[str, Any]:
    streams = streams_of(options)
    metrics_port = free_port()
    kind: Kind = kinds_of(argparse.Namespace(build=[], reference=None))[0]
    engine = ("--engine", "instant", "--step-ms", str(options.step_ms), "--cache-blocks", "0")
    engine += ("--max-running", str(2 * len(streams)), "--step-tokens", "1000000")  # no stream waits
    with (
        SimulatedWorker(engine="instant", cache_blocks=0) as instant,
        workers(options.workers, *engine) as fleet,
        router(
            kind,
            *("--worker-urls", *(worker.url for worker in fleet), "--policy", "round_robin"),
            *("--prometheus-port", str(metrics_port), "--decision-headers"),
            *("--continue-streams", options.continue_streams, "--retry-budget", str(options.retry_budget)),
        ) as target,
    ):
        bodies = asyncio.run(undisturbed(instant.port, streams))
        clients, _ = asyncio.run(kill_in_the_middle(target.port, streams, fleet, options))
        deadline = time.monotonic() + 5
        while load_of(target.port) and time.monotonic() < deadline:
            time.sleep(0.01)
        page, left = metrics(metrics_port), load_of(target.port)
        killed = [worker.url for worker in fleet[: options.kills]]
    return figures_of(clients, bodies, killed, page, left)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=1000, help="that repeat themselves (%(default)s)")
    parser.add_argument("--sampled", type=int, default=60, help="further ones, that do not (%(default)s)")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--between", type=float, default=2.0, help="seconds between two kills (%(default)s)")
    parser.add_argument("--tokens", type=int, default=80, help="of each stream (%(default)s)")
    parser.add_argument("--step-ms", type=float, default=150, help="between two tokens (%(default)s)")
    parser.add_argument("--events-before", type=int, default=10, help="of each, before a kill (%(default)s)")
    parser.add_argument("--retry-budget", type=float, default=1, help="as of the router (%(default)s)")
    parser.add_argument("--continue-streams", default="verified", choices=["verified", "off"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all figures go")
    options = parser.parse_args(arguments)
    if not 0 < options.kills < options.workers:
        parser.error("--kills must be above 0 and below --workers, of which some have to serve")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    figures = run(options)
    print_figures(figures, options)
    if options.json:
        asked = {name: value for name, value in vars(options).items() if name != "json"}
        options.json.write_text(json.dumps({"options": asked, **figures}, indent=1) + "\n")
    return 0 if is_good(figures, options) else 1


if __name__ == "__main__":
    sys.exit(main())
