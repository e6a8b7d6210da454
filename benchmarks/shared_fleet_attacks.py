#!/usr/bin/env python3
"""Tenants beside each other over HTTP: what do the others get beside a heavy one, or one that cheats?

    PYTHONPATH=build/release/python:. .venv/bin/python benchmarks/shared_fleet_attacks.py
    ... benchmarks/shared_fleet_attacks.py --seconds 60 --scenarios alone heavy lengths

Each row has simulated workers of its own, which take the time that an engine would (h200_32b), and a router
before them: `fifo` sends all requests to the workers as they come, `tenants` has --admission-config.
Everybody has a key. A light tenant asks now and then, an honest one keeps 48 requests under way, and besides

    alone        nobody, and no honest one either
    heavy        four tenants, each with 96 requests under way
    promotion    a tenant with 256, which claims the class `interactive` in header, service_tier and priority
    names        the same, with a tenant of its own invention in each request, of 100,000
    keys         the same, with 64 keys that the operator has given to one tenant
    own_keys     likewise, and to none: each key is a tenant, which is what tenants are for
    lengths      a tenant with 256 that says nothing of its lengths: responses are ten times as long as
                 those of the others, without usage

Costs are prompt tokens and twice those of the response, as the router charges them; `fair` is what all others
may cost by their number of tenants, as a multiple of the honest one. The first fifth of the time does not
count. The processor has to be idle: times are those of the workers, and of a client in Python.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.share_a_fleet import words
from vllm_router import Router
from vllm_router.testing import SimulatedWorker

RULES = """
classes: [{name: interactive, kv_ceiling: 0.95}, {name: default}, {name: batch}]
engine_priority: {engine: vllm, client: clamp}
"""
HEAVY, HEAVY_OPEN, HONEST_OPEN = 4, 96, 48
KEYS, OTHERS_OPEN = 64, 256
LIGHT_PER_S = 1.0
PROMPT_WORDS, RESPONSE_TOKENS, LONG = 1_200, 30, 10
TOKENS_PER_WORD = 1.25
NAMES = 100_000
GIVES_UP_S = 0.02  # between an attacker's rejection and its next request


@dataclasses.dataclass
class Asked:
    """What is the same in all requests of a client."""

    key: str
    prompt_words: int = PROMPT_WORDS
    tokens: int = RESPONSE_TOKENS
    claims: bool = False  # to be more than its key permits
    invents: bool = False  # names of tenants
    usage: bool = True


@dataclasses.dataclass
class Run:
    """One row. Times in seconds; costs in tokens."""

    port: int
    begin: float
    deadline: float
    first_tokens: list[float] = dataclasses.field(default_factory=list)  # of the light tenant
    honest: float = 0.0
    others: float = 0.0
    rejected: int = 0

    def spend(self, key: str, now: float, cost: float) -> None:
        if self.begin <= now < self.deadline:
            self.honest += cost if key == "sk-honest" else 0
            self.others += cost if key not in ("sk-honest", "sk-light") else 0


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Who is there besides the light tenant, and how often the honest one's cost is fair."""

    fair: float
    clients: tuple[Asked, ...] = ()
    keys_have_tenant: bool = True
    honest: bool = True
    light_claims: bool = False


def one_tenant(**how: bool | int) -> tuple[Asked, ...]:
    return (Asked("sk-attacker", **how),) * OTHERS_OPEN  # type: ignore[arg-type]


SCENARIOS = {
    "alone": Scenario(0.0, honest=False),
    "heavy": Scenario(
        float(HEAVY), tuple(Asked(f"sk-heavy-{n}") for n in range(HEAVY) for _ in range(HEAVY_OPEN))
    ),
    "promotion": Scenario(1.0, one_tenant(claims=True), light_claims=True),
    "names": Scenario(1.0, one_tenant(invents=True)),
    "keys": Scenario(1.0, tuple(Asked(f"sk-many-{n % KEYS}") for n in range(OTHERS_OPEN))),
    "own_keys": Scenario(
        float(KEYS), tuple(Asked(f"sk-many-{n % KEYS}") for n in range(OTHERS_OPEN)), keys_have_tenant=False
    ),
    "lengths": Scenario(1.0, one_tenant(tokens=LONG * RESPONSE_TOKENS, usage=False)),
}


def keys_of(scenario: Scenario) -> str:
    """The file of clients' keys."""
    lines = ["sk-light tenant=light max_class=interactive", "sk-honest tenant=honest"]
    lines += ["sk-attacker tenant=attacker"]
    lines += [f"sk-heavy-{n} tenant=heavy-{n}" for n in range(HEAVY)]
    tenant = " tenant=many" if scenario.keys_have_tenant else ""
    lines += [f"sk-many-{n}{tenant}" for n in range(KEYS)]
    return "\n".join(lines) + "\n"


def message_of(asked: Asked, rng: random.Random) -> bytes:
    members: dict[str, object] = {
        "model": "simulated-model",
        "prompt": words(rng, asked.prompt_words),
        "max_tokens": asked.tokens,
        "ignore_eos": True,
        "stream": True,
    }
    if asked.usage:
        members["stream_options"] = {"include_usage": True}
    head = ""
    if asked.claims:
        members |= {"service_tier": "priority", "priority": -999}
        head += "x-smg-priority: interactive\r\n"
    if asked.invents:
        head += f"X-Tenant-ID: invented-{rng.randrange(NAMES)}\r\n"
    body = json.dumps(members).encode()
    return (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
        + f"Authorization: Bearer {asked.key}\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


async def ask(run: Run, asked: Asked, rng: random.Random) -> float | None:
    """One streamed completion: seconds until its first token; None: it was rejected."""
    message = message_of(asked, rng)
    began, first = time.monotonic(), 0.0
    reader, writer = await asyncio.open_connection("127.0.0.1", run.port)
    try:
        writer.write(message)
        if b" 200 " not in await reader.readline():
            return None
        async for line in reader:
            if line.startswith(b"data: {") and b'"text"' in line:
                now = time.monotonic()
                run.spend(asked.key, now, 2 if first else asked.prompt_words * TOKENS_PER_WORD + 2)
                first = first or now - began
    finally:
        writer.close()
    return first


async def keep_asking(run: Run, asked: Asked, number: int) -> None:
    rng = random.Random(number)
    await asyncio.sleep(rng.uniform(0, 0.5))
    while time.monotonic() < run.deadline:
        if await ask(run, asked, rng) is None:
            run.rejected += 1
            await asyncio.sleep(GIVES_UP_S)


async def ask_now_and_then(run: Run, asked: Asked) -> None:
    """An open loop, whose times do not depend on the responses."""
    rng = random.Random(1)

    async def one(number: int) -> None:
        counts = time.monotonic() >= run.begin
        first_token_s = await ask(run, asked, random.Random(number))
        if first_token_s is None:
            run.rejected += 1
        elif counts:
            run.first_tokens.append(first_token_s)

    tasks: list[asyncio.Task[None]] = []
    while time.monotonic() < run.deadline:
        tasks.append(asyncio.create_task(one(1_000_000 + len(tasks))))
        await asyncio.sleep(rng.expovariate(LIGHT_PER_S))
    await asyncio.gather(*tasks)


async def drive(run: Run, scenario: Scenario) -> None:
    light = Asked("sk-light", claims=scenario.light_claims)
    clients = [*scenario.clients, *(Asked("sk-honest"),) * (HONEST_OPEN if scenario.honest else 0)]
    closed = [asyncio.create_task(keep_asking(run, asked, n)) for n, asked in enumerate(clients)]
    # What the light tenant began is waited for: those that are slowest would be left out.
    patience = run.deadline - time.monotonic() + 60
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ask_now_and_then(run, light), patience)
    for task in closed:
        task.cancel()
    await asyncio.gather(*closed, return_exceptions=True)


@contextlib.contextmanager
def fleet(workers: int, scenario: Scenario, has_tenants: bool) -> Iterator[int]:
    """The port of a router before fresh workers."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        simulated = [
            stack.enter_context(SimulatedWorker(engine="h200_32b", cache_blocks=20_000))
            for _ in range(workers)
        ]
        (folder / "keys").write_text(keys_of(scenario))
        (folder / "classes.yaml").write_text(RULES)
        options = {"admission_config": str(folder / "classes.yaml")} if has_tenants else {}
        router = Router("auto", [worker.url for worker in simulated])
        server = router.serve(
            threads=1,
            client_api_key_file=str(folder / "keys"),
            tenant_header="X-Tenant-ID",
            log_level="warning",
            **options,
        )
        try:
            yield server.port
        finally:
            server.stop(grace_secs=0)


def row(name: str, router: str, run: Run, alone_s: float) -> str:
    waits = np.array(run.first_tokens or [np.nan])
    spent_s = run.deadline - run.begin
    p99 = float(np.percentile(waits, 99))
    cells = (
        name,
        router,
        str(len(run.first_tokens)),
        f"{np.percentile(waits, 50):.2f}",
        f"{p99:.2f}",
        f"{p99 / alone_s:.1f}",
        f"{run.honest / spent_s:.0f}",
        f"{run.others / spent_s:.0f}",
        f"{run.others / run.honest:.1f}" if run.honest else "",
        f"{SCENARIOS[name].fair:.0f}" if run.honest else "",
        str(run.rejected),
    )
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenarios", nargs="+", default=tuple(SCENARIOS), choices=tuple(SCENARIOS))
    parser.add_argument("--routers", nargs="+", default=("fifo", "tenants"), choices=("fifo", "tenants"))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    args = parser.parse_args(argv)
    print(
        "| beside it | router | light requests | first token p50 s | p99 s | times alone | honest cost/s"
        " | others' cost/s | others : honest | fair | rejected |\n"
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    alone_s = float("nan")
    for name in args.scenarios:
        scenario = SCENARIOS[name]
        for router in args.routers if name != "alone" else args.routers[-1:]:
            with fleet(args.workers, scenario, has_tenants=router == "tenants") as port:
                begin = time.monotonic()
                run = Run(port, begin + args.seconds / 5, begin + args.seconds)
                asyncio.run(drive(run, scenario))
            if name == "alone":
                alone_s = float(np.percentile(run.first_tokens or [np.nan], 99))
            print(row(name, router, run, alone_s), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
