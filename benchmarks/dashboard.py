"""What viewers of the dashboard cost the router: CPU time of the process, and bytes per tick.

    PYTHONPATH=build/release/python python -m benchmarks.dashboard
    ... benchmarks.dashboard --workers 100 --viewers 1 16 --seconds 20 --per-second 50

All workers are one process, which listens at every address that begins with 127. Beside the viewers, clients
send --per-second chats, so that rows of workers change. The first row has no dashboard at all, the second one
no viewer. *viewer* is what each viewer adds to the second row, in per cent of a core: the median of the
differences within a round, whose cases share a router. The other columns are medians of --rounds, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import own_endpoints
from benchmarks.own_endpoints import free_port, honest, raise_file_limit, running, url_of, wait_for

COLUMNS = ("dashboard", "viewers", "CPU, % of a core", "viewer", "bytes a tick")
EVENTS = b"GET /dashboard/events HTTP/1.1\r\nHost: x\r\n\r\n"


class Viewers:
    """Connections that read events until the block ends."""

    def __init__(self, port: int, count: int) -> None:
        self.bytes = 0
        self._open = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
        self._threads = [threading.Thread(target=self._read, args=(one,), daemon=True) for one in self._open]
        for one, thread in zip(self._open, self._threads, strict=True):
            one.sendall(EVENTS)
            thread.start()

    def _read(self, one: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            while data := one.recv(1 << 16):
                self.bytes += len(data)

    def close(self) -> None:
        """Leaves."""
        for one in self._open:
            one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._open:
            one.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, to the nanosecond: /proc/PID/stat has hundredths of a second."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure(
    router: subprocess.Popen[str], port: int, viewers: int, seconds: float, rate: int
) -> tuple[float, float]:
    """(share of a core, bytes of a tick) with so many viewers."""
    watching = Viewers(port, viewers)
    try:
        time.sleep(2)  # the first events are the largest
        before, begun, read = cpu_seconds(router.pid), time.monotonic(), watching.bytes
        asyncio.run(honest(port, seconds, rate))
        took = time.monotonic() - begun
        share = (cpu_seconds(router.pid) - before) / took
        return share, (watching.bytes - read) / took / max(1, viewers)
    finally:
        watching.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a row for each number of viewers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--viewers", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--per-second", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    raise_file_limit()
    with running([sys.executable, own_endpoints.__file__, "--serve"]) as workers:
        assert workers.stdout is not None
        worker_port = int(workers.stdout.readline())
        urls = [url_of(number, worker_port) for number in range(args.workers)]
        cases = [("off", 0), ("on", 0), *(("on", count) for count in args.viewers)]
        found: dict[tuple[str, int], list[tuple[float, float]]] = {case: [] for case in cases}
        for _ in range(args.rounds):
            for state in ("off", "on"):
                port = free_port()
                command = [
                    sys.executable, "-m", "vllm_router", "--port", str(port), "--host", "127.0.0.1",
                    "--policy", "auto", "--health-check-interval-secs", "0", "--kv-events", "off",
                    "--model-refresh-secs", "0", "--log-level", "error",
                    "--prometheus-port", str(free_port()),
                    *(["--no-dashboard"] if state == "off" else []), "--worker-urls", *urls,
                ]  # fmt: skip
                with running(command) as router:
                    wait_for(router, port)
                    for case in cases:
                        if case[0] == state:
                            found[case].append(measure(router, port, case[1], args.seconds, args.per_second))
        print(" | ".join(COLUMNS), flush=True)
        alone = [share for share, _ in found["on", 0]]
        for (state, count), rounds in found.items():
            shares = [share for share, _ in rounds]
            share = statistics.median(shares)
            added = statistics.median(more - less for more, less in zip(shares, alone, strict=True))
            each = f"{100 * added / count:.3f}" if count else "-"
            size = f"{statistics.median(size for _, size in rounds):.0f}" if count else "-"
            print(" | ".join((state, str(count), f"{100 * share:.2f}", each, size)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
