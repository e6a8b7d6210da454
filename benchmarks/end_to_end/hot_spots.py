#!/usr/bin/env python3
"""Where the router's CPU goes under one scenario's load, step by step: the measured column of the budget.

    PYTHONPATH=build/bench/python python benchmarks/end_to_end/hot_spots.py json1k

Needs perf (Debian: linux-perf) and the preset bench, whose extension keeps its symbols. Each sample counts
for the innermost line of ours that it stood in, inlined code included, and the file of that line says which
step it was; a sample in the kernel counts for its system call. A step's microseconds are its share of all
samples times the scenario's CPU per request, which is measured without perf.
"""

from __future__ import annotations

import argparse
import collections
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import run

import vllm_router._core

EXTENSION = Path(vllm_router._core.__file__).resolve()

# The first pattern that matches the system call, the file below cpp/, or the library's function decides.
STEPS = (
    ("kernel: write to sockets", r"sendmsg|sendto|writev"),
    ("kernel: read from sockets", r"recv"),
    ("kernel: wait and be woken", r"epoll|futex|eventfd|timerfd|poll$"),
    (
        "kernel: open and close",
        r"connect|accept|close|socket$|sockopt|ioctl|getsockname|getpeername|shutdown",
    ),
    ("kernel: the rest", r"^kernel"),
    ("parse heads", r"http/head_parser|http/head\.h|http/char_class|boost/beast"),
    ("frame bodies", r"http/(body_reader|chunked|unframe)"),
    ("write heads", r"http/head_writer"),
    ("request id", r"proxy/request_id"),
    ("route: fields, key, policy, ticket", r"^(routing|policy|worker|index|hashing)/|simdjson"),
    (
        "record: metrics, access log, usage",
        r"proxy/(recorder|metrics|tally|access_line|exchange_record)|http/stream_tail|base/(text|log)",
    ),
    ("clocks and deadlines", r"net/timer_wheel|base/clock|clock_gettime|chrono"),
    ("sockets and loop", r"^net/|boost/asio"),
    ("exchange, relay, pool", r"^proxy/|^base/"),
    ("libc: memory", r"malloc|free|alloc|unlink_chunk|operator new|operator delete|arena"),
    ("libc: copy, compare, search", r"^_*(mem|str)"),
    ("the rest", r""),
)


def step_of(place: str) -> str:
    return next(step for step, pattern in STEPS if re.search(pattern, place))


def record(
    bench: run.Bench, contender: run.Contender, scenario: run.Scenario, seconds: float, data: Path
) -> None:
    """perf over the middle of a load."""
    load = bench.processes.start(
        [
            *(str(run.PROGRAMS / "load_generator"), "--port", str(contender.port)),
            *scenario.arguments(seconds + 2, 0.5),
        ],
        bench.directory / "load_generator.log",
        bench.load_core,
    )
    time.sleep(1)  # until all connections are open
    command = ["perf", "record", "-q", "-F", "4999", "-g", "-p", str(contender.process.pid), "-o", str(data)]
    log = bench.directory / "perf.log"
    perf = bench.processes.start([*command, "--", "sleep", str(seconds)], log)
    if perf.wait(seconds + 60) != 0 or not data.exists():
        raise run.BenchmarkError(f"perf record failed: {log.read_text()}")
    bench.processes.end(load)


def samples(data: Path) -> collections.Counter[str]:
    """Samples by place: a system call, a file below cpp/, or a library's function."""
    script = subprocess.run(
        ["perf", "script", "-i", str(data), "-F", "ip,sym,dso"], capture_output=True, text=True, check=True
    )
    places: collections.Counter[str] = collections.Counter()
    addresses: collections.Counter[str] = collections.Counter()
    for block in script.stdout.split("\n\n"):
        frames = re.findall(r"^\s*([0-9a-f]+) (.*) \(([^()]*)\)$", block, re.MULTILINE)
        if not frames:
            continue
        address, symbol, library = frames[0]
        if "kernel" in library:
            calls = [name for _, name, _ in frames if re.match(r"__(x64_)?sys_", name)]
            places[f"kernel: {calls[-1] if calls else 'no system call'}"] += 1
        elif EXTENSION.name in library:
            addresses[address] += 1
        else:
            places[symbol.partition("@")[0] or library] += 1
    for address, chain in _source_lines(list(addresses)).items():
        places[_place_of(chain)] += addresses[address]
    return places


def _place_of(chain: list[str]) -> str:
    """The file below cpp/ or the library; what of Beast and simdjson was inlined into ours is their work."""
    for library in ("boost/beast", "simdjson"):
        if any(library in line for line in chain):
            return library
    # The compiler's cache may have recorded another checkout's path.
    ours = [re.sub(r".*/cpp/", "", line) for line in chain if "/cpp/" in line]
    if ours:
        return ours[0].partition(":")[0]
    if any("boost/asio" in line for line in chain):
        return "boost/asio"
    return chain[0].partition(":")[0] if chain else "?"


def _source_lines(addresses: list[str]) -> dict[str, list[str]]:
    """Each address with its lines, the innermost inlined function first."""
    found: dict[str, list[str]] = {}
    if not addresses:
        return found
    out = subprocess.run(
        ["addr2line", "-e", str(EXTENSION), "-i", "-a"],
        input="\n".join(addresses),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in out.splitlines():
        if line.startswith("0x"):
            found[f"{int(line, 16):x}"] = chain = []
        else:
            chain.append(line)
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Which step of a request costs how much, by perf.")
    parser.add_argument("scenario", choices=[s.name for s in run.SCENARIOS if not s.memory], help="the load")
    parser.add_argument("--policy", default="round_robin", help="of the router (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="to sample (%(default)s)")
    parser.add_argument("--cores", metavar="PROXY,LOAD", help="cores to use; the first two that are allowed")
    parser.add_argument(
        "--places", type=int, default=0, metavar="N", help="also show the N dearest files and calls"
    )
    arguments = parser.parse_args(argv)
    scenario = next(s for s in run.SCENARIOS if s.name == arguments.scenario)
    try:
        with (
            run.terminated_is_interrupted(),
            tempfile.TemporaryDirectory(prefix="vllm-router-profile-") as directory,
            run.Processes() as processes,
        ):
            bench = run.Bench(processes, Path(directory), run.choose_cores(arguments.cores))
            ours = bench.start(f"ours/{arguments.policy}")
            rows = [bench.load(ours, scenario.arguments(1, 0.5), 3) for _ in range(3)]
            cpu_us = statistics.median(row["cpu_us"] for row in rows)
            record(bench, ours, scenario, arguments.seconds, bench.directory / "perf.data")
            places = samples(bench.directory / "perf.data")
    except run.BenchmarkError as error:
        print(f"hot_spots.py: {error}", file=sys.stderr)
        return 1
    for key, value in run.describe([]).items():
        print(f"{key}: {value}")
    print(f"{scenario.name}, {arguments.policy}: {cpu_us:.1f} {scenario.unit}, {places.total()} samples\n")
    steps: collections.Counter[str] = collections.Counter()
    for place, count in places.items():
        steps[step_of(place)] += count
    print(f"| step | share | {scenario.unit} |\n|---|---|---|")
    for step, _ in STEPS:
        share = steps[step] / places.total()
        print(f"| {step} | {share:.1%} | {share * cpu_us:.2f} |")
    for place, count in places.most_common(arguments.places):
        print(f"{count / places.total():7.2%} {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
