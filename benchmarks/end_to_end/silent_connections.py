"""What connections that never speak hold in the router, and whether they keep clients out.

    python benchmarks/end_to_end/silent_connections.py [--connections 10000]

A router in a process of its own with room for half of them; all of them connect and say nothing, in plain
and at a port that speaks TLS. Printed: how much the router's anonymous memory has grown by those that stay
(the kernel's own memory for sockets is not in it), how many were closed for others, and how long a client
that comes then waits for its response.
"""

from __future__ import annotations

import argparse
import re
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trustme

ASK = b"GET /liveness HTTP/1.1\r\nHost: a\r\n\r\n"
CLIENTS = 200


def anonymous_bytes(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def seconds_of_a_request(port: int, tls: ssl.SSLContext | None) -> float:
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as plain:
        client = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        client.sendall(ASK)
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        client.close()
    return time.perf_counter() - began


def is_closed(silent: socket.socket) -> bool:
    try:
        return silent.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def measure(name: str, count: int, flags: list[str], tls: ssl.SSLContext | None) -> None:
    room = count // 2
    command = [sys.executable, "-m", "vllm_router.launch_router", "--port", "0", "--threads", "1"]
    with subprocess.Popen(
        [*command, "--max-connections", str(room), "--client-head-timeout-secs", "300", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as router:
        assert router.stderr is not None
        line = next(line for line in router.stderr if " serves http" in line)
        found = re.search(r" serves https?://127\.0\.0\.1:(\d+)", line)
        assert found
        port = int(found[1])
        before = [seconds_of_a_request(port, tls) for _ in range(CLIENTS)]
        empty = anonymous_bytes(router.pid)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
        after = [seconds_of_a_request(port, tls) for _ in range(CLIENTS)]
        grown = anonymous_bytes(router.pid) - empty
        closed = sum(is_closed(connection) for connection in silent)
        for connection in silent:
            connection.close()
        router.terminate()
    print(
        f"{name:5}  {count} silent, room for {room}: {closed} closed for others; "
        f"{grown / (count - closed):.0f} bytes each of the rest, {grown / 2**20:.1f} MiB together; "
        f"{CLIENTS} of {CLIENTS} clients served, median {statistics.median(after) * 1e3:.2f} ms "
        f"({statistics.median(before) * 1e3:.2f} ms before)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=10000)
    count = parser.parse_args().connections
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    measure("plain", count, [], None)
    with tempfile.TemporaryDirectory() as directory:
        authority = trustme.CA()
        made = authority.issue_cert("localhost")
        cert, key = Path(directory, "cert.pem"), Path(directory, "key.pem")
        cert.write_bytes(made.cert_chain_pems[0].bytes())
        key.write_bytes(made.private_key_pem.bytes())
        context = ssl.create_default_context()
        authority.configure_trust(context)
        measure("TLS", count, ["--tls-cert-path", str(cert), "--tls-key-path", str(key)], context)


if __name__ == "__main__":
    main()
