#!/usr/bin/env python3
"""Recorded requests of coding agents through a router: does a session stay, and how much of it is found?

    PYTHONPATH=build/release/python python benchmarks/agents.py RECORDINGS/*.jsonl
    ... agents.py claude_code.jsonl --policies auto cache_aware --workers 3

A recording has a line per request: scenario, method, path, headers, body; `{"$text": 3}` and `{"$json": 3}`
in a body stand for what the line with the number 3 has. Each recording is sent anew to a router with idle
workers that respond at once, one request after the other. Per scenario: how many workers served it, and the
share of the blocks or bytes of its prompts that the policy took the chosen worker to hold. Nothing is
computed, so nothing here is a time.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_router import Router

POLICIES = ("auto", "cache_aware", "vllm_cache_aware", "prefix_aware", "consistent_hash")
NOT_SENT = ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")


class Worker(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def respond(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        body = b'{"data": []}'
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = respond  # noqa: N815

    def log_message(self, *_arguments: Any) -> None:
        pass


def requests(path: Path) -> Iterator[dict[str, Any]]:
    """Those with a body, which is the bytes to send."""
    kept: dict[int, Any] = {}

    def expand(value: Any) -> Any:
        if isinstance(value, list):
            return [expand(member) for member in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and next(iter(value)) in ("$text", "$json"):
            return kept[next(iter(value.values()))]
        return {name: expand(member) for name, member in value.items()}

    with path.open() as lines:
        for line in lines:
            entry = json.loads(line)
            if "scenario" not in entry:
                kept[entry["text"]] = entry.get("value", entry.get("json"))
            elif entry["method"] == "POST" and "body" in entry:
                ascii_only = entry.get("style", {}).get("ascii", True)
                body = json.dumps(expand(entry["body"]), ensure_ascii=ascii_only).encode()
                yield {**entry, "body": body}


@dataclass
class Outcome:
    """Of one scenario."""

    workers: set[str | None] = field(default_factory=set)
    matched: int = 0  # in the policy's unit
    total: int = 0

    def __str__(self) -> str:
        share = f" {self.matched / self.total:.3f}" if self.total else ""
        return f"{len(self.workers)}{share}"


def send_all(path: Path, policy: str, workers: int) -> dict[str, Outcome]:
    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Worker) for _ in range(workers)]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    urls = [f"http://127.0.0.1:{server.server_port}" for server in servers]
    outcomes: dict[str, Outcome] = {}
    options = {"decision_headers": True, "health_check_interval_secs": 0}
    router = Router(policy, urls, seed=1)
    with router.serve(host="127.0.0.1", port=0, log_level="error", **options) as running:
        connection = http.client.HTTPConnection("127.0.0.1", running.port)
        for request in requests(path):
            fields = {name: value for name, value in request["headers"] if name.lower() not in NOT_SENT}
            connection.request("POST", request["path"], request["body"], fields)
            response = connection.getresponse()
            response.read()
            found = response.getheader("x-vllm-router-cache-status", "0/0 ").split(" ")[0].split("/")
            outcome = outcomes.setdefault(request["scenario"], Outcome())
            outcome.workers.add(response.getheader("x-vllm-router-worker"))
            outcome.matched += int(found[0])
            outcome.total += int(found[1])
        connection.close()
    for server in servers:
        server.shutdown()
        server.server_close()
    return outcomes


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args(argv)
    print("recording | policy | scenario: workers, share matched")
    for path in args.recordings:
        for policy in args.policies:
            outcomes = send_all(path, policy, args.workers)
            row = ", ".join(f"{scenario}: {outcome}" for scenario, outcome in outcomes.items())
            print(f"{path.stem} | {policy} | {row}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
