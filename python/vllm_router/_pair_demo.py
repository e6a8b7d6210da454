"""`vllm-router demo --pd`: requests that a prefill and a decode worker serve together, one after the other.

Two simulated workers of each stage, which share their KV blocks in this process, and a router before them.
Each request is followed through the router's metrics: which workers served it, how long prefill took and the
hand-over to decode, and what became of the blocks that the prefill worker held for it. In the end no block is
held.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vllm_router.errors import RouterError
from vllm_router.router import Router
from vllm_router.server import Server
from vllm_router.testing import SimulatedWorker

_FLEET: dict[str, Any] = {"step_ms": 4.0, "prefill_us_per_token": 400.0, "cache_blocks": 4096}
_COMPLETIONS = "/v1/completions"
_CHAT = "/v1/chat/completions"
_PATIENCE = 10.0  # seconds, for what takes a fraction of one
_TEXT = "The router chooses a pair of workers, edits two copies of one request and ends both properly. "
_Step = Callable[["Pairs"], "tuple[str, str] | None"]


@dataclasses.dataclass(frozen=True)
class Happened:
    """One request, as the router's metrics and headers tell."""

    what: str
    plan: str
    prefill: str
    decode: str
    prefill_ms: float | None
    handoff_ms: float | None
    claim: str
    """How the blocks at the prefill worker ended; empty if there were none."""


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The workers of both stages and the router before them."""

    prefill: list[SimulatedWorker]
    decode: list[SimulatedWorker]
    server: Server

    def names(self) -> dict[str, str]:
        """Of each worker's URL: P0, P1, D0, D1."""
        stages = {"P": self.prefill, "D": self.decode}
        return {
            worker.url: f"{letter}{i}" for letter, stage in stages.items() for i, worker in enumerate(stage)
        }

    def blocks(self) -> tuple[int, int]:
        """Requests whose blocks prefill workers hold now, and those whose blocks only their lease freed."""
        counters = [worker.kv_counters() for worker in self.prefill]
        return sum(counter.held for counter in counters), sum(counter.stranded for counter in counters)

    def connect(self) -> http.client.HTTPConnection:
        """A client of the router."""
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)


@contextlib.contextmanager
def _fleet(port: int) -> Iterator[Pairs]:
    with contextlib.ExitStack() as stack:

        def start(stage: str) -> list[SimulatedWorker]:
            options = {"stage": stage, "connector": "nixl", **_FLEET}
            return [stack.enter_context(SimulatedWorker(**options)) for _ in range(2)]

        prefill, decode = start("prefill"), start("decode")
        router = Router(
            prefill_urls=[worker.url for worker in prefill], decode_urls=[worker.url for worker in decode]
        )
        server = router.serve(port=port, threads=1, decision_headers=True)
        try:
            yield Pairs(prefill, decode, server)
        finally:
            server.stop(grace_secs=1)


def _series(server: Server) -> dict[str, float]:
    """The metrics of pairs, by name and labels."""
    lines = server.metrics().splitlines()
    parts = [line.rpartition(" ") for line in lines if line.startswith("vllm_router_pd_")]
    return {name.removeprefix("vllm_router_pd_"): float(value) for name, _, value in parts}


def _await(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise RouterError(f"{what} took more than {_PATIENCE:g} s")
        time.sleep(0.005)


def _request(pairs: Pairs, path: str, body: dict[str, Any]) -> tuple[str, str]:
    """Sends it and reads the response; the URLs of both workers, or an empty one."""
    with contextlib.closing(pairs.connect()) as client:
        client.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = client.getresponse()
        data = response.read()
        if response.status != 200:
            raise RouterError(f"HTTP {response.status}: {data.decode(errors='replace')}")
        return (
            response.getheader("x-vllm-router-prefill-worker") or "",
            response.getheader("x-vllm-router-worker") or "",
        )


def _leave(pairs: Pairs, *, gate: str = "", after_s: float = 0.0) -> None:
    """A client that leaves after so many seconds, or while prefill waits at this gate."""
    for worker in pairs.prefill if gate else []:
        worker.close_gate(gate)
    with contextlib.closing(pairs.connect()) as client:
        body = _completion(f"A client that leaves. {gate} " + _TEXT * 40, tokens=2_000, stream=True)
        client.request("POST", _COMPLETIONS, json.dumps(body), {"Content-Type": "application/json"})
        if gate:
            _await(lambda: any(worker.waiting_at(gate) for worker in pairs.prefill), "a prompt")
        else:
            time.sleep(after_s)
    for worker in pairs.prefill if gate else []:
        worker.open_gate(gate)


def _completion(prompt: str | list[str], tokens: int = 24, **more: Any) -> dict[str, Any]:
    return {"model": "simulated-model", "prompt": prompt, "max_tokens": tokens, **more}


def _chat(turns: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Turn {turn}. " + _TEXT * 8} for turn in range(turns)]
    return {"model": "simulated-model", "messages": messages, "max_tokens": 24, "stream": True}


def _leave_while_decode_writes(pairs: Pairs) -> None:
    with contextlib.closing(pairs.connect()) as client:
        body = _completion("Long. " + _TEXT * 8, tokens=2_000, stream=True)
        client.request("POST", _COMPLETIONS, json.dumps(body), {"Content-Type": "application/json"})
        client.getresponse().readline()


_STEPS: list[tuple[str, _Step]] = [
    ("a completion", lambda pairs: _request(pairs, _COMPLETIONS, _completion(_TEXT * 16))),
    ("a chat, streamed", lambda pairs: _request(pairs, _CHAT, _chat(2))),
    ("its next turn", lambda pairs: _request(pairs, _CHAT, _chat(3))),
    ("a list of two prompts", lambda pairs: _request(pairs, _COMPLETIONS, _completion([_TEXT, _TEXT * 2]))),
    ("left during prefill", lambda pairs: _leave(pairs, after_s=0.05)),
    ("left in the hand-over", lambda pairs: _leave(pairs, gate="prefill_body")),
    ("left during decode", _leave_while_decode_writes),
]


def _follow(pairs: Pairs, what: str, step: _Step) -> Happened:
    """Does it, waits until the router is done with it, and says what happened."""
    before = _series(pairs.server)

    def difference() -> dict[str, float]:
        after = _series(pairs.server)
        return {name: value - before.get(name, 0.0) for name, value in after.items()}

    def labels(name: str) -> list[str]:
        found = [key for key, count in difference().items() if key.startswith(f"{name}{{") and count > 0]
        return [key.partition('"')[2].rpartition('"')[0] for key in found]

    urls = step(pairs) or ("", "")
    _await(lambda: bool(labels("plan_total")), what)
    # The blocks of a request that has ended are freed by another one.
    _await(lambda: pairs.blocks()[0] == 0, "blocks that are held")
    counted = difference()

    def milliseconds(name: str) -> float | None:
        return counted[f"{name}_sum"] * 1e3 if counted.get(f"{name}_count") else None

    if counted.get("prefill_seconds_count"):
        _await(lambda: bool(labels("claims_total")), "the end of a claim")
    names = pairs.names()
    return Happened(
        what=what,
        plan=", ".join(labels("plan_total")).replace("two_stages", "pair"),
        prefill=names.get(urls[0], ""),
        decode=names.get(urls[1], ""),
        prefill_ms=milliseconds("prefill_seconds"),
        handoff_ms=milliseconds("handoff_seconds"),
        claim=", ".join(labels("claims_total")),
    )


def _table(rows: list[Happened]) -> Table:
    table = Table(
        title="One request, two workers", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
        pad_edge=False,
    )  # fmt: skip
    for heading in ("request", "served by", "P → D"):
        table.add_column(heading, no_wrap=True)
    for heading in ("prefill", "hand-over"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("blocks", no_wrap=True)
    for row in rows:
        pair = " → ".join(filter(None, (row.prefill, row.decode)))
        times = ["-" if ms is None else f"{ms:#.3g} ms" for ms in (row.prefill_ms, row.handoff_ms)]
        table.add_row(row.what, row.plan, pair or "-", *times, row.claim or "none")
    return table


def run(port: int, console: Console, stop: list[int]) -> int:
    """Sends the requests and prints what happened; the exit status: 1 if blocks were stranded."""
    with _fleet(port) as pairs:
        urls = [f"{name} {url.removeprefix('http://')}" for url, name in pairs.names().items()]
        console.print(Text("Prefill and decode workers: " + ", ".join(urls)))
        rows: list[Happened] = []
        for what, step in _STEPS:
            if stop:
                return 0
            rows.append(_follow(pairs, what, step))
        console.print(_table(rows))
        held, stranded = pairs.blocks()
        left = f"Requests whose blocks are still held: {held}; freed by their lease alone: {stranded}."
        console.print(Text(left))
        return 1 if held or stranded else 0
