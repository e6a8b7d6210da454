#!/usr/bin/env python3
"""A thousand clients of prefill/decode pairs leave within a second: what is left of load and of KV blocks?

    PYTHONPATH=build/release/python python benchmarks/cancel_storm.py
    ... cancel_storm.py --reference /tmp/reference/bin/python      # vllm-project/router's wheel beside it

Streams begin evenly over a second, and each client leaves after up to `--patience-ms`, at random: while the
prompt is computed, in the hand-over, before the first byte, or behind it. Simulated workers have the pace
of an engine. Loads are those of `GET /workers`, read every 10 ms from the last departure on. *Held* are
requests whose blocks the prefill worker still keeps 2 s later; *stranded*, those that no one frees before
their lease ends. This router runs twice: a prefill that is aborted as it ends strands its blocks, and with
`--pd-cancel-prefill never` none is aborted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
import urllib.request
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.pairs import Kind, Router, add_kinds, kinds_of, request_of, router, stages_of
from vllm_router.testing import SimulatedWorker

LEASE_S = 31
COLUMNS = ("router", "left", "before decode", "ms to no load", "held after 2 s", "stranded", "freed unpulled")


class Storm(NamedTuple):
    left: int
    ended: float  # the last departure
    before_decode: int  # without a byte of the response


async def client(port: int, request: bytes, begin_s: float, patience_s: float) -> bool:
    """Whether a byte came before it left."""
    await asyncio.sleep(begin_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    came = False
    ends = time.monotonic() + patience_s
    with contextlib.suppress(asyncio.TimeoutError):
        while await asyncio.wait_for(reader.read(65536), ends - time.monotonic()):
            came = True
    writer.close()
    return came


async def storm(port: int, count: int, patience_s: float, seed: int) -> Storm:
    dice = random.Random(seed)
    requests = (
        request_of(40 + dice.randrange(160), stream=True, max_tokens=2000, user=str(number))
        for number in range(count)
    )
    came = await asyncio.gather(
        *(
            client(port, request, number / count, dice.uniform(0, patience_s))
            for number, request in enumerate(requests)
        )
    )
    return Storm(len(came), time.perf_counter(), came.count(False))


def load_of(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/workers", timeout=10) as response:
        return sum(worker["load"] for worker in json.load(response)["workers"])


def ms_to_no_load(target: Router, since: float, patience_s: float) -> str:
    while time.perf_counter() < since + patience_s:
        if load_of(target.port) == 0:
            return f"{1e3 * (time.perf_counter() - since):.0f}"
        time.sleep(0.01)
    return f"{load_of(target.port)} left after {patience_s:.0f} s"


def run(kind: Kind, options: argparse.Namespace) -> tuple[str, ...]:
    with (
        SimulatedWorker(stage="prefill", cache_blocks=1_000_000, max_running=2048) as prefill,
        SimulatedWorker(stage="decode", cache_blocks=1_000_000, max_running=2048) as decode,
        router(kind, *stages_of(prefill.url, decode.url)) as target,
    ):
        seen = asyncio.run(storm(target.port, options.requests, options.patience_ms / 1e3, options.seed))
        resting = ms_to_no_load(target, seen.ended, 10)
        time.sleep(max(0.0, seen.ended + 2 - time.perf_counter()))
        held = prefill.kv_counters().held
        prefill.advance_leases(LEASE_S)
        counters = prefill.kv_counters()
        figures = (seen.left, seen.before_decode, resting, held, counters.stranded, counters.released)
        return (kind.name, *(str(figure) for figure in figures))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--patience-ms", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    add_kinds(parser)
    options = parser.parse_args(arguments)
    ours, *others = kinds_of(options)
    never = ours._replace(name="never cancels prefill", flags=(*ours.flags, "--pd-cancel-prefill", "never"))
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    for _ in range(options.rounds):
        for kind in (ours, never, *others):
            print("| " + " | ".join(run(kind, options)) + " |", flush=True)
        options.seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
