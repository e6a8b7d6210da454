#!/usr/bin/env python3
"""What an event costs that may have to go on elsewhere, in instructions of the router, which no load changes.

    PYTHONPATH=build/bench/python:. python -m benchmarks.continued_instructions
    ... benchmarks.continued_instructions --streams 200 --profile /tmp/on.callgrind

Valgrind's callgrind counts them, in all threads of a router before the mock worker, which sends streams of
events of 200 bytes as fast as it can, from the 20th stream on; what the kernel does is not among them.
*of a stream* is what is left with one event. With `--profile` the second count's file is kept, for
callgrind_annotate.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.own_endpoints import running
from benchmarks.trace_instructions import PROGRAMS, instructions

COLUMNS = ("--continue-streams", "instructions of an event", "of a stream", "added to an event")
WARM_UP = 20  # streams
EVENTS = 400
ARMS = (("off", ()), ("verified", ("--continue-streams", "verified")))


def send(port: int, streams: int, events: int) -> None:
    load = [str(PROGRAMS / "load_generator"), "--port", str(port), "--mode", "closed", "--connections", "4"]
    load += ["--stream", f"{events}/0/200", "--requests", str(streams), "--seconds", "300", "--warmup", "0"]
    subprocess.run(load, check=True, stdout=subprocess.DEVNULL)


def measure(
    worker_port: int, flags: Sequence[str], events: int, streams: int, profile: Path | None = None
) -> float:
    """Instructions of a stream of so many events."""
    count = instructions(
        worker_port,
        ["--policy", "round_robin", *flags],
        lambda port: send(port, WARM_UP, events),
        lambda port: send(port, streams, events),
        profile,
    )
    return count / streams


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=100, help="of each count (%(default)s)")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="where the profile with the flag goes")
    options = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed; apt-get install valgrind")
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    without = 0.0
    with running([str(PROGRAMS / "upstream"), "--port", "0"]) as upstream:
        assert upstream.stdout is not None
        worker_port = json.loads(upstream.stdout.readline())["port"]
        for name, flags in ARMS:
            profile = options.profile if flags else None
            of_one = measure(worker_port, flags, 1, options.streams)
            of_many = measure(worker_port, flags, EVENTS, options.streams, profile)
            event = (of_many - of_one) / (EVENTS - 1)
            without = without or event
            print(f"| {name} | {event:,.0f} | {of_one:,.0f} | {event - without:,.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
