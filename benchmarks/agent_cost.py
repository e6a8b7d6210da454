#!/usr/bin/env python3
"""What an agent's request costs the router beside a chat of the same size, and what a small chat costs.

    PYTHONPATH=build/release/python:. .venv/bin/python benchmarks/agent_cost.py
    ... benchmarks/agent_cost.py --policies auto --rounds 9 --build ../before/build/release/python

Claude Code's recorded first request (tests/data/agents), the chat that says the same, and a small chat, each
sent again and again to a worker that responds at once: microseconds of the router's CPU per request, median
of the rounds; and the median of the ratios within a round, to the large chat for the agent's request, else to
the same request and this package.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.pairs import CLIENTS, add_kinds, kinds_of, measure, router
from benchmarks.response_cache import worker
from tests.fakes.recorded_agents import recorded

AGENT = "claude_code_2.1.197"


def request_of(path: str, body: bytes, *fields: tuple[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: r", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}"]).encode() + b"\r\n\r\n" + body


def as_chat(body: dict[str, Any], size: int) -> bytes:
    """The same system prompt, tools and messages as a chat, with blanks up to `size` bytes."""
    system = "".join(block["text"] for block in body["system"])
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": tool["input_schema"],
            },
        }
        for tool in body["tools"]
    ]
    texts = [
        "".join(block["text"] for block in message["content"])
        if isinstance(message["content"], list)
        else message["content"]
        for message in body["messages"]
    ]
    messages = [{"role": "system", "content": system}, *({"role": "user", "content": text} for text in texts)]
    chat = json.dumps({"model": body["model"], "messages": messages, "tools": tools}, ensure_ascii=False)
    return chat.encode().ljust(size)


def requests() -> dict[str, bytes]:
    """By name, in the order of the table."""
    first = next(one for one in recorded(AGENT) if one.path.startswith("/v1/messages?") and one.json["tools"])
    assert first.body is not None
    left_out = ("host", "content-length", "accept-encoding", "connection")
    fields = [field for field in first.headers if field[0].lower() not in left_out]
    plain = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello! " * 130}]}).encode()
    json_only = ("Content-Type", "application/json")
    # Not streamed, since only the router's reading of the request is of interest.
    body = first.json | {"stream": False}
    message = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return {
        f"chat of {len(message)} bytes": request_of(
            "/v1/chat/completions", as_chat(body, len(message)), json_only
        ),
        "the agent's message": request_of(first.path, message, *fields),
        f"chat of {len(plain)} bytes": request_of("/v1/chat/completions", plain, json_only),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policies", nargs="+", default=("round_robin", "auto"), metavar="POLICY")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=2000, help="of a round")
    add_kinds(parser)
    options = parser.parse_args(argv)
    kinds = kinds_of(options)
    sent = requests()
    bases = [next(iter(sent)), next(iter(sent)), list(sent)[-1]]
    print("| policy | package | request | us | ratio |\n|---|---|---|--:|--:|")
    for policy in options.policies:
        with ExitStack() as stack:
            url = stack.enter_context(worker(1))
            chosen = [kind._replace(flags=(*kind.flags, "--policy", policy)) for kind in kinds]
            routers = [stack.enter_context(router(kind, "--worker-urls", url)) for kind in chosen]
            found: dict[tuple[str, str], list[float]] = {}
            for target in routers:
                for request in sent.values():
                    measure(target, request, 8 * CLIENTS)  # connections are open, prompts are known
            for _ in range(options.rounds):
                for name, request in sent.items():
                    for target in routers:
                        took = measure(target, request, options.requests)
                        found.setdefault((target.name, name), []).append(took)
        ours = routers[0].name
        for (package, name), figures in found.items():
            own = (package, bases[list(sent).index(name)]) if package == ours else (ours, name)
            ratio = statistics.median(one / base for one, base in zip(figures, found[own], strict=True))
            print(
                f"| {policy} | {package} | {name} | {statistics.median(figures):.1f} | {ratio:.3f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
