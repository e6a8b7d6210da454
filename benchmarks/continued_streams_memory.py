#!/usr/bin/env python3
"""What the router keeps of a stream that may go on at another worker, and that it keeps no more than it may.

    PYTHONPATH=build/release/python:. python benchmarks/continued_streams_memory.py
    ... continued_streams_memory.py --streams 1000 --body-bytes 16384

Streams that say little: each gets a token every `--step-ms`. The router's memory is its RssAnon, less that
before the first stream. It is read when every stream has `--events-first` events, and again when each has
`--events`: what grows between is kept per token. Arms: without --continue-streams, with it, and with a
--continue-memory-mb of which the streams need more. *counted* is continue_memory_bytes, and *without* the
streams that began beyond it, which are served like the others.

Ends with status 1 if a stream is not whole, if more is counted than permitted, or if any is counted in the
end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.continued_streams import counts, metrics
from benchmarks.pairs import Router, free_port, kinds_of, router
from vllm_router.testing import SimulatedWorker

COLUMNS = ("arm", "streams", "bytes a stream", "and a token", "counted, MiB", "permitted", "without", "whole")
PATIENCE_S = 300.0
AT_ONCE = 200  # connections that are opened together
UNTIL_CLOSED_S = 10.0


class Arm(NamedTuple):
    name: str
    flags: tuple[str, ...]
    permitted_mib: int | None = None


class Row(NamedTuple):
    arm: str
    streams: int
    bytes_a_stream: float
    bytes_a_token: float
    counted_mib: float
    permitted_mib: int | None
    without: int
    whole: int
    left_bytes: float

    def is_good(self) -> bool:
        within = self.permitted_mib is None or self.counted_mib <= self.permitted_mib
        return self.whole == self.streams and within and self.left_bytes == 0


class Client(asyncio.Protocol):
    """Counts events, and keeps nothing but the last bytes."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._last = b""
        self.events = 0
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b"data: {")
        self._last = (self._last + data)[-64:]

    def connection_lost(self, _error: Exception | None) -> None:
        self.over.set_result(b"data: [DONE]" in self._last and self._last.endswith(b"0\r\n\r\n"))


def request_of(number: int, tokens: int, body_bytes: int) -> bytes:
    asked = {"model": "simulated-model", "temperature": 0, "stream": True, "max_tokens": tokens}
    text = f"{number} "
    shortest = len(json.dumps({**asked, "prompt": text}))
    body = json.dumps({**asked, "prompt": text + "x" * max(0, body_bytes - shortest)}).encode()
    return (
        b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body
    )


def anonymous_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


async def until_all_have(clients: Sequence[Client], events: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while min(client.events for client in clients) < events:
        if time.monotonic() > deadline or any(client.over.done() for client in clients):
            raise RuntimeError("streams ended too early, or did not begin")
        await asyncio.sleep(0.05)


async def measure(arm: Arm, target: Router, metrics_port: int, options: argparse.Namespace) -> Row:
    loop = asyncio.get_running_loop()
    before = anonymous_bytes(target.pid)
    tokens = options.events + options.tokens_after
    requests = [request_of(number, tokens, options.body_bytes) for number in range(options.streams)]
    clients: list[Client] = []
    for at in range(0, len(requests), AT_ONCE):
        opened = (
            loop.create_connection(lambda request=request: Client(request), "127.0.0.1", target.port)
            for request in requests[at : at + AT_ONCE]
        )
        clients += [client for _, client in await asyncio.gather(*opened)]
    await until_all_have(clients, options.events_first)
    first, had = anonymous_bytes(target.pid) - before, sum(client.events for client in clients)
    page = await loop.run_in_executor(None, metrics, metrics_port)
    counted = counts(page, "continue_memory_bytes").get("", 0.0)
    await until_all_have(clients, options.events)
    more = anonymous_bytes(target.pid) - before - first
    got = sum(client.events for client in clients) - had
    whole = await asyncio.wait_for(asyncio.gather(*(client.over for client in clients)), PATIENCE_S)
    deadline = time.monotonic() + UNTIL_CLOSED_S
    left = counted
    while left and time.monotonic() < deadline:
        page = await loop.run_in_executor(None, metrics, metrics_port)
        left = counts(page, "continue_memory_bytes").get("", 0.0)
    without = counts(page, "streams_not_remembered_total").get("", 0.0)
    return Row(
        arm.name,
        options.streams,
        first / options.streams,
        more / max(1, got),
        counted / 2**20,
        arm.permitted_mib,
        int(without),
        sum(whole),
        left,
    )


def run(arm: Arm, options: argparse.Namespace) -> Row:
    metrics_port = free_port()
    kind = kinds_of(argparse.Namespace(build=[], reference=None))[0]
    # All streams begin in one step.
    engine = {
        "engine": "instant",
        "step_ms": options.step_ms,
        "cache_blocks": 0,
        "max_running": options.streams,
        "step_tokens": options.streams * options.body_bytes,
    }
    with (
        SimulatedWorker(**engine) as worker,
        router(kind, "--worker-urls", worker.url, "--prometheus-port", str(metrics_port), *arm.flags) as to,
    ):
        return asyncio.run(measure(arm, to, metrics_port, options))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--body-bytes", type=int, default=2048, help="of each request (%(default)s)")
    parser.add_argument("--step-ms", type=float, default=2000, help="between two tokens (%(default)s)")
    parser.add_argument("--events-first", type=int, default=4, help="of each, when read (%(default)s)")
    parser.add_argument("--events", type=int, default=10, help="of each, when read again (%(default)s)")
    parser.add_argument("--tokens-after", type=int, default=8, help="of each after that (%(default)s)")
    parser.add_argument("--small-mib", type=int, default=8, help="of the last arm (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all figures go")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    on = ("--continue-streams", "verified")
    small = options.small_mib
    arms = (
        Arm("off", ()),
        Arm("verified", on, 256),
        Arm(f"verified, {small} MiB", (*on, "--continue-memory-mb", str(small)), small),
    )
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    rows = []
    for arm in arms:
        row = run(arm, options)
        rows.append(row)
        permitted = "–" if row.permitted_mib is None else str(row.permitted_mib)
        print(
            f"| {row.arm} | {row.streams} | {row.bytes_a_stream:,.0f} | {row.bytes_a_token:.1f} | "
            f"{row.counted_mib:.2f} | {permitted} | {row.without} | {row.whole} |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    return 0 if all(row.is_good() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
