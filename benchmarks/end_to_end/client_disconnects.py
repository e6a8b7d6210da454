"""What it saves that a client's disconnect ends its request at the worker.

    python benchmarks/end_to_end/client_disconnects.py [--clients 40]

Clients ask a simulated worker for 1,000 tokens each, close their connection after one second, and ask again,
three times; once with --half-closed-clients abort, the default, and once with serve, where a disconnect is
noticed only when something is written. Printed are the tokens that the engine generated, none of which any
client waited for, and how long a patient request of 50 tokens took meanwhile.
"""

from __future__ import annotations

import argparse
import json
import socket
import threading
import time

from vllm_router import Router
from vllm_router.testing import SimulatedWorker

TRIES = 3
TOKENS = 1000


def request(tokens: int) -> bytes:
    body = json.dumps({"model": "simulated-model", "prompt": "hello", "max_tokens": tokens}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def leave_early(port: int) -> None:
    for _ in range(TRIES):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(request(TOKENS))
            time.sleep(1)


def measure(clients: int, half_closed: str) -> None:
    with (
        SimulatedWorker(engine="h200_32b", speed=4, max_running=16) as worker,
        Router("least_load", [worker.url]).serve(log_level="warn", half_closed_clients=half_closed) as server,
    ):
        threads = [threading.Thread(target=leave_early, args=(server.port,)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        time.sleep(1.5)
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port)) as patient:
            patient.sendall(request(50))
            assert b" 200 " in patient.recv(100_000)
        waited = time.monotonic() - began
        for thread in threads:
            thread.join()
        while worker.stats()["running"] + worker.stats()["waiting"]:
            time.sleep(0.1)
        tokens = worker.stats()["generation_tokens"] - 50
        print(f"{half_closed:6} {tokens:8} tokens wasted; a patient request of 50 tokens took {waited:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=40)
    clients = parser.parse_args().clients
    for half_closed in ("abort", "serve"):
        measure(clients, half_closed)


if __name__ == "__main__":
    main()
