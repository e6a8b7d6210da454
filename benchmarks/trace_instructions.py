"""What tracing costs a request in instructions of the router's own code, which no other program changes.

    PYTHONPATH=build/bench/python python -m benchmarks.trace_instructions
    ... benchmarks.trace_instructions --requests 2000 --policy auto --shares 0.01 1.0

Valgrind's callgrind counts them, in all threads of a router before the mock worker, from the 300th request
on; what the kernel does is not among them. The mock worker takes the spans, too, as it takes any request.
*added* is against the first row, which is not traced.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import vllm_router._core
from benchmarks.own_endpoints import running

PROGRAMS = Path(vllm_router._core.__file__).resolve().parents[2] / "benchmarks" / "end_to_end"
COLUMNS = ("traced", "instructions of a request", "added")
WARM_UP = 300  # requests
EXPORT_S = 3.0  # in which all spans of a load are sent


def send(port: int, requests: int) -> None:
    """A load of 1 KB chats on 32 connections, and the time to send its spans."""
    load = [str(PROGRAMS / "load_generator"), "--port", str(port), "--mode", "closed", "--connections", "32"]
    load += ["--body-bytes", "1024", "--requests", str(requests), "--seconds", "300", "--warmup", "0"]
    subprocess.run(load, check=True, stdout=subprocess.DEVNULL)
    time.sleep(EXPORT_S)


def port_in(log: Path, router: subprocess.Popen[bytes]) -> int:
    """Where the router serves, once its log says so."""
    while not (found := re.search(rb"serves http://[^: ]+:(\d+)", log.read_bytes())):
        if router.poll() is not None:
            raise SystemExit(f"the router ended: {log.read_text()}")
        time.sleep(0.1)
    return int(found[1])


def instrument(router: subprocess.Popen[bytes], state: str) -> None:
    """Begins to count, or ends: on, off."""
    command = ["callgrind_control", "-i", state, str(router.pid)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def instructions(
    worker_port: int,
    flags: Sequence[str],
    warm_up: Callable[[int], None],
    load: Callable[[int], None],
    profile: Path | None = None,
) -> int:
    """Of all threads of a router with these flags during `load`, which gets its port, as `warm_up` before.

    `profile`: where callgrind's file goes.
    """
    with tempfile.TemporaryDirectory() as directory:
        log, counts = Path(directory) / "router.log", Path(directory) / "counts"
        command = [
            "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}",
            sys.executable, "-m", "vllm_router.launch_router", *flags,
            "--worker-urls", f"http://127.0.0.1:{worker_port}", "--host", "127.0.0.1", "--port", "0",
            "--prometheus-port", "0", "--threads", "1", "--no-dashboard",
        ]  # fmt: skip
        with log.open("wb") as out:
            router = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ)
        try:
            port = port_in(log, router)
            warm_up(port)
            instrument(router, "on")
            load(port)
            instrument(router, "off")
            router.terminate()
            router.wait()
        finally:
            router.kill()
        totals = re.findall(r"^totals: (\d+)$", counts.read_text(errors="replace"), re.MULTILINE)
        if profile is not None:
            shutil.copy(counts, profile)
        return sum(int(total) for total in totals)


def measure(worker_port: int, policy: str, share: float, requests: int) -> float:
    """Instructions of a request; `share` of all are traced."""
    flags = ["--policy", policy]
    if share > 0:
        flags += ["--enable-trace", "--otlp-traces-endpoint", f"http://127.0.0.1:{worker_port}"]
        flags += ["--otel-sampling-ratio", str(share)]
    count = instructions(
        worker_port, flags, lambda port: send(port, WARM_UP), lambda port: send(port, requests)
    )
    return count / requests


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a row without tracing, and one for each share."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 1.0])
    args = parser.parse_args(argv)
    if shutil.which("valgrind") is None:
        print("valgrind is missing: apt-get install valgrind", file=sys.stderr)
        return 2
    print(" | ".join(COLUMNS), flush=True)
    alone = 0.0
    with running([str(PROGRAMS / "upstream"), "--port", "0"]) as upstream:
        assert upstream.stdout is not None
        found = re.search(r"\d+", upstream.stdout.readline())
        assert found is not None
        for share in (0.0, *args.shares):
            count = measure(int(found[0]), args.policy, share, args.requests)
            alone = alone or count
            print(f"{share:.0%} | {count:,.0f} | {count - alone:,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
