"""What an idle connection holds in the router, plain and over TLS.

    python benchmarks/end_to_end/tls_memory.py [--connections 1000]

A router in a process of its own, connections that have each asked once and rest, and how much its anonymous
memory has grown by them. The kernel's own memory for sockets is not in it.
"""

from __future__ import annotations

import argparse
import re
import socket
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

import trustme

ASK = b"GET /liveness HTTP/1.1\r\nHost: a\r\n\r\n"


def anonymous_bytes(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def connect(port: int, tls: ssl.SSLContext | None) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    if tls is not None:
        connection = tls.wrap_socket(connection, server_hostname="localhost")
    connection.sendall(ASK)
    assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    return connection


def measure(count: int, flags: list[str], tls: ssl.SSLContext | None) -> float:
    """Bytes per connection."""
    command = [sys.executable, "-m", "vllm_router.launch_router", "--port", "0", "--threads", "1"]
    with subprocess.Popen(
        [*command, "--prometheus-port", "0", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as router:
        assert router.stderr is not None
        line = next(line for line in router.stderr if " serves http" in line)
        found = re.search(r" serves https?://127\.0\.0\.1:(\d+)", line)
        assert found
        port = int(found[1])
        warm = [connect(port, tls) for _ in range(50)]
        before = anonymous_bytes(router.pid)
        resting = [connect(port, tls) for _ in range(count)]
        grown = anonymous_bytes(router.pid) - before
        for connection in (*warm, *resting):
            connection.close()
        router.terminate()
    return grown / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=1000)
    count = parser.parse_args().connections
    with tempfile.TemporaryDirectory() as directory:
        authority = trustme.CA()
        made = authority.issue_cert("localhost")
        cert, key = Path(directory, "cert.pem"), Path(directory, "key.pem")
        cert.write_bytes(made.cert_chain_pems[0].bytes())
        key.write_bytes(made.private_key_pem.bytes())
        plain = measure(count, [], None)
        print(f"plain    {plain / 1024:6.1f} KiB per idle connection")
        flags = ["--tls-cert-path", str(cert), "--tls-key-path", str(key)]
        for name, version in (("TLS 1.2", ssl.TLSVersion.TLSv1_2), ("TLS 1.3", ssl.TLSVersion.TLSv1_3)):
            context = ssl.create_default_context()
            authority.configure_trust(context)
            context.minimum_version = context.maximum_version = version
            held = measure(count, flags, context)
            print(f"{name}  {held / 1024:6.1f} KiB, {(held - plain) / 1024:.1f} more than plain")


if __name__ == "__main__":
    main()
