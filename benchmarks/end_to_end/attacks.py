#!/usr/bin/env python3
"""What one hostile client can do to all the others, here and with nginx and HAProxy.

    PYTHONPATH=build/release/python python benchmarks/end_to_end/attacks.py       all attacks, about 3 minutes
    ... attacks.py --attacks poison breaker --servers ours --seconds 2            a quick look

Each attack comes from 127.0.0.1. Beside it run eight honest clients with addresses of their own, each of
which sends one request after the other, with bodies that no other client sends. Printed are the share of
honest requests that were served (a 200 within five seconds; the goal is 100 %), the slowest of them, and how
many of the workers have died. Ends with status 1 if honest requests were lost with ours, or more workers than
the attack may cost. nginx and HAProxy run with their defaults where they have the function that is attacked.

Everything is on loopback, bounded in time and number, and ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE = 5.0  # of an honest client, per request
START_SECONDS = 30
HONEST_CLIENTS = 8
PATH = "/v1/completions"


def request(
    body: bytes, *fields: str, path: str = PATH, method: str = "POST", length: int | None = None
) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: attacked", *fields]
    if method == "POST":
        head += [
            "Content-Type: application/json",
            f"Content-Length: {len(body) if length is None else length}",
        ]
    return "\r\n".join([*head, "", ""]).encode() + body


# ---- a worker, and a service that validates keys: this file again, in processes of their own


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = re.search(r"^content-length: *(\d+)", head, re.IGNORECASE | re.MULTILINE)
            body = await reader.readexactly(int(length[1])) if length else b""
            target = head.split(" ", 2)[1]
            status, out = "200 OK", b'{"object": "text_completion"}'
            if b"poison" in body:
                os._exit(1)
            if b"fail" in body:
                status = "500 Internal Server Error"
            if target.startswith("/v1/models"):
                await asyncio.sleep(0.3)  # as an engine whose event loop is busy
                out = b'{"object": "list", "data": []}'
            if target.startswith("/validate"):
                await asyncio.sleep(0.05)
                if "bearer good" not in head.lower():
                    status = "401 Unauthorized"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(out)}\r\n\r\n".encode() + out)
            await writer.drain()
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(serve_one, "127.0.0.1", 0, limit=1 << 22, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


# ---- servers under attack


class ServerError(Exception):
    """A server or worker did not start; the message is for a person."""


class Processes:
    """All that one attack has started."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def start(self, argv: list[str], **kwargs: Any) -> subprocess.Popen[str]:
        self.all.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, text=True, **kwargs))
        return self.all[-1]

    def worker(self) -> tuple[subprocess.Popen[str], int]:
        process = self.start([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    def end(self) -> None:
        for process in self.all:
            process.send_signal(signal.SIGKILL)  # a graceful end waits for the attack's own requests
        for process in self.all:
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def start_ours(processes: Processes, home: Path, workers: list[int], flags: list[str]) -> int:
    log = home / "ours.log"
    command = [
        *(sys.executable, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", "0"),
        *("--worker-urls", *(f"http://127.0.0.1:{port}" for port in workers)),
        *("--prometheus-port", "0", "--policy", "round_robin", *flags),
    ]
    with log.open("w") as sink:
        process = processes.start(command, stdout=sink, stderr=sink)
    return int(wait_for(lambda: re.search(r"serves http://[^: ]+:(\d+)", log.read_text()), process, log)[1])


def start_peer(processes: Processes, home: Path, command: list[str], text: str) -> int:
    port = free_port()
    file = home / "peer.conf"
    file.write_text(text.replace("@PORT@", str(port)).replace("@HOME@", str(home)))
    log = home / "peer.log"
    with log.open("w") as sink:
        process = processes.start([*command, str(file)], stdout=sink, stderr=sink)
    wait_for(lambda: connects(port), process, log)
    return port


def start_nginx(processes: Processes, home: Path, workers: list[int], _flags: list[str]) -> int:
    servers = "".join(f"server 127.0.0.1:{port};" for port in workers)
    paths = "".join(
        f"{kind}_temp_path @HOME@/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = (
        "daemon off; master_process off; worker_processes 1; pid @HOME@/nginx.pid;"
        " error_log @HOME@/nginx.log; events { worker_connections 1024; }"
        f"http {{ access_log off; {paths} client_max_body_size 0;"
        f" upstream workers {{ {servers} keepalive 64; }}"
        "server { listen 127.0.0.1:@PORT@; location / { proxy_pass http://workers; proxy_http_version 1.1;"
        ' proxy_set_header Connection ""; } } }'
    )
    program = str(find_program("nginx"))
    return start_peer(processes, home, [program, "-p", str(home), "-e", "stderr", "-c"], text)


def start_haproxy(processes: Processes, home: Path, workers: list[int], _flags: list[str]) -> int:
    servers = "".join(
        f"  server worker{number} 127.0.0.1:{port} check\n" for number, port in enumerate(workers)
    )
    text = (
        "global\n  maxconn 1024\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n"
        "  timeout server 60s\nfrontend clients\n  bind 127.0.0.1:@PORT@\n  default_backend workers\n"
        f"backend workers\n{servers}"
    )
    return start_peer(processes, home, [str(find_program("haproxy")), "-db", "-f"], text)


SERVERS = {"ours": start_ours, "nginx": start_nginx, "haproxy": start_haproxy}


def find_program(name: str) -> str | None:
    """Debian puts servers where only root's PATH looks."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def wait_for(happened: Callable[[], Any], process: subprocess.Popen[str], log: Path) -> Any:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if found := happened():
            return found
        time.sleep(0.01)
    raise ServerError(f"{process.args[0]} did not start: {log.read_text()[-2000:]}")  # type: ignore[index]


def connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


# ---- clients


class HonestClients:
    """Threads, each with one request after the other, until they are stopped."""

    def __init__(self, port: int, *, body_bytes: int = 200, fresh: bool = False, keys: bool = False) -> None:
        self.port, self.body_bytes, self.fresh, self.keys = port, body_bytes, fresh, keys
        self.sent = self.served = 0
        self.slowest = 0.0
        self.ends: dict[str, int] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._over = threading.Event()
        addresses = [f"127.0.1.{number + 1}" for number in range(HONEST_CLIENTS)]
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in addresses]

    def __enter__(self) -> HonestClients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, address: str) -> None:
        connection: socket.socket | None = None
        while not self._over.wait(0.01):
            number = next(self._numbers)
            key = [f"Authorization: Bearer good-{number}"] if self.keys else []
            body = json.dumps({"prompt": f"{number} ".ljust(self.body_bytes, "x")}).encode()
            began = time.monotonic()
            end = "no response"
            try:
                if connection is None:
                    connection = socket.create_connection(
                        ("127.0.0.1", self.port), timeout=PATIENCE, source_address=(address, 0)
                    )
                connection.settimeout(PATIENCE)
                connection.sendall(request(body, *key))
                end = self._read(connection)
            except OSError as error:
                end = type(error).__name__
            took = time.monotonic() - began
            if (end != "200" or self.fresh) and connection is not None:
                connection.close()
                connection = None
            with self._lock:
                self.sent += 1
                self.served += end == "200"
                self.slowest = max(self.slowest, took)
                if end != "200":
                    self.ends[end] = self.ends.get(end, 0) + 1
        if connection is not None:
            connection.close()

    @staticmethod
    def _read(connection: socket.socket) -> str:
        received = b""
        while b"\r\n\r\n" not in received:
            piece = connection.recv(65536)
            if not piece:
                return "no response"
            received += piece
        head, _, rest = received.partition(b"\r\n\r\n")
        length = re.search(rb"^content-length: *(\d+)", head, re.IGNORECASE | re.MULTILINE)
        missing = int(length[1]) - len(rest) if length else 0
        while missing > 0:
            piece = connection.recv(65536)
            if not piece:
                return "cut"
            missing -= len(piece)
        return head.split(b" ", 2)[1].decode()


@contextlib.contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """That many at once, as far as the server takes them."""
    opened = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=1))
    try:
        yield opened
    finally:
        for one in opened:
            one.close()


def send_and_read(port: int, data: bytes) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as one:
        one.sendall(data)
        one.recv(65536)


# ---- the attacks: each gets the port and how long it may last


def flood(port: int, seconds: float, data: bytes) -> None:
    """The same request from 32 connections at a time."""
    end = time.monotonic() + seconds

    def send() -> None:
        for _ in range(500):
            send_and_read(port, data)
            if time.monotonic() > end:
                return

    threads = [threading.Thread(target=send) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def poison(port: int, _seconds: float) -> None:
    """One body that crashes its worker, twenty times."""
    for _ in range(20):
        send_and_read(port, request(b'{"prompt": "poison"}'))


def poisons(port: int, _seconds: float) -> None:
    """Five such bodies, one after the other."""
    for number in range(5):
        send_and_read(port, request(b'{"prompt": "poison %d"}' % number))
        time.sleep(0.2)  # a person who changes the prompt is slower


def breaker(port: int, seconds: float) -> None:
    """Requests that every engine answers with 500."""
    flood(port, seconds, request(b'{"prompt": "fail"}'))


def drip(port: int, seconds: float) -> None:
    """Bodies that announce 8 MiB, send 66 KB and then a byte now and then."""
    end = time.monotonic() + seconds
    with connections(port, 64) as opened:
        for one in opened:
            with contextlib.suppress(OSError):
                one.sendall(request(b"x" * 66_000, length=8 << 20))
        while time.monotonic() < end:
            for one in opened:
                with contextlib.suppress(OSError):
                    one.send(b"x")
            time.sleep(0.2)


def silent(port: int, seconds: float) -> None:
    """More connections than the server takes, which never say anything."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with connections(port, 300):
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))


def fan_out(port: int, seconds: float) -> None:
    """Requests that the router can only answer by asking all workers."""
    flood(port, seconds, request(b"", path="/v1/models", method="GET"))


def bogus_keys(port: int, seconds: float) -> None:
    """Keys that nobody knows, from clients that leave at once."""
    end = time.monotonic() + seconds
    for number in range(3000):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as one:
            one.sendall(request(b"{}", f"Authorization: Bearer bogus-{number}"))
        if time.monotonic() > end:
            break


def slow_uploads(port: int, seconds: float) -> None:
    """Streamed bodies that stall after their first bytes."""
    end = time.monotonic() + seconds
    with connections(port, 16) as opened:
        for one in opened:
            with contextlib.suppress(OSError):
                one.sendall(request(b"x" * 100_000, length=2 << 20))
        while time.monotonic() < end:
            time.sleep(0.2)


@dataclasses.dataclass(frozen=True)
class Attack:
    """What is run, beside which honest clients, and against whom."""

    run: Callable[[int, float], None]
    workers: int = 3
    flags: tuple[str, ...] = ()
    honest: dict[str, Any] = dataclasses.field(default_factory=dict)
    peers: bool = True  # nginx and HAProxy have the function that is attacked
    validator: bool = False
    may_die: int = 0


ATTACKS = {
    "poison": Attack(poison, workers=8, may_die=2),
    "poisons": Attack(poisons, workers=12, may_die=7),  # two of the first two, one of each other
    "breaker": Attack(breaker),
    "drip": Attack(drip, flags=("--body-memory-mb", "256"), honest={"body_bytes": 300_000}),
    "silent": Attack(silent, flags=("--max-connections", "200"), honest={"fresh": True}, peers=False),
    "fan_out": Attack(fan_out, peers=False),
    "bogus_keys": Attack(bogus_keys, honest={"keys": True}, peers=False, validator=True),
    "slow_uploads": Attack(slow_uploads, flags=("--max-concurrent-requests", "16"), peers=False),
}


def measure(name: str, server: str, seconds: float) -> dict[str, Any]:
    attack = ATTACKS[name]
    processes = Processes()
    with tempfile.TemporaryDirectory() as directory:
        try:
            workers = [processes.worker() for _ in range(attack.workers)]
            flags = list(attack.flags)
            if attack.validator:
                flags += ["--api-key-validation-urls", f"http://127.0.0.1:{processes.worker()[1]}/validate"]
            port = SERVERS[server](processes, Path(directory), [port for _, port in workers], flags)
            with HonestClients(port, **attack.honest) as honest:
                time.sleep(0.5)
                attack.run(port, seconds)
                time.sleep(0.5)
            dead = sum(process.poll() is not None for process, _ in workers)
        finally:
            processes.end()
    return {
        "attack": name,
        "server": server,
        "honest": honest.sent,
        "served": honest.served,
        "share": honest.served / max(1, honest.sent),
        "slowest_ms": round(honest.slowest * 1000),
        "workers_lost": dead,
        "workers": attack.workers,
        "ends": honest.ends,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--seconds", type=float, default=5, help="duration of an attack")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve())
        return 0
    failed = False
    if not arguments.json:
        print(f"{'attack':14}{'server':10}{'honest':>8}{'served':>9}{'slowest':>10}{'workers lost':>14}")
    for name in arguments.attacks:
        for server in arguments.servers:
            if server != "ours" and (not ATTACKS[name].peers or find_program(server) is None):
                continue
            row = measure(name, server, arguments.seconds)
            if server == "ours":
                failed |= row["served"] < row["honest"] or row["workers_lost"] > ATTACKS[name].may_die
            if arguments.json:
                print(json.dumps(row), flush=True)
            else:
                lost = f"{row['workers_lost']} of {row['workers']}"
                slowest = f"{row['slowest_ms']} ms"
                print(
                    f"{name:14}{server:10}{row['honest']:>8}{row['share']:>9.2%}{slowest:>10}{lost:>14}"
                    f"  {row['ends'] or ''}",
                    flush=True,
                )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
