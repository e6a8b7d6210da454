#!/usr/bin/env python3
"""Requests through a fleet of which a worker joins, drains, restarts or crashes each second: does one fail?

    PYTHONPATH=build/release/python:. python benchmarks/end_to_end/churn.py --source file    seconds
    ... churn.py --source api dns file kubernetes --requests 1000000                         minutes for each

The router runs as the command runs it, and hears of its workers from one source: a file, calls to its API,
DNS (tests/fakes/dns.py) or Kubernetes (tests/fakes/kubernetes.py). Workers are processes, each at an address
of 127.0.1.0/24. A response may be cut only if its worker crashed or was restarted while the client was
reading it; a request that fails in any other way is one that a retry could have saved. At the end no worker
may have load, the fleet must be what was declared, and nothing may have connected to a worker more than a
second after it left the fleet. Ends with status 1 if any of that is not so.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import socket
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

from benchmarks.end_to_end.churn_sources import SOURCES, ApiSource, Router, Worker
from benchmarks.end_to_end.churn_workers import WorkerForker, die_with_parent

HERE = Path(__file__).resolve().parent
KINDS = ("join", "drain", "restart", "crash")
FEWEST, MOST = 5, 10  # workers
AWAY_SECS = 1.5  # of a worker that crashed and comes back
SETTLE_SECS = 60.0  # until the router must have taken in a change
MARGIN_SECS = 0.25  # between the end of a worker and the end of what it served
PROBE_SECS = 1.0  # after a worker left, nothing may connect to it
TRAP_SECS = 4.0  # for which that is watched: several health checks

Rows = list[dict[str, Any]]


class Trap:
    """Listens where a worker was, and writes down who comes."""

    def __init__(self, worker: Worker) -> None:
        self.left_at = time.monotonic()
        self.url = worker.url
        self.accepted: list[float] = []
        self._address = (worker.host, worker.port)

    async def watch(self) -> list[float]:
        """Seconds after the worker left, of each connection that came too late."""

        def came(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.accepted.append(time.monotonic() - self.left_at)
            writer.close()

        server = await asyncio.start_server(came, *self._address)
        await asyncio.sleep(TRAP_SECS)
        server.close()
        return [seconds for seconds in self.accepted if seconds > PROBE_SECS]


class Fleet:
    """The workers, and what becomes of them."""

    def __init__(self, forker: WorkerForker, source: Any, router: Router, port: int, seed: int) -> None:
        self._forker, self._source, self._router, self._port = forker, source, router, port
        self._choice = random.Random(seed)
        self._declaring = asyncio.Lock()
        self._addresses = iter(f"127.0.{third}.{last}" for third in range(1, 255) for last in range(1, 255))
        self.workers: list[Worker] = []
        self.done: collections.Counter[str] = collections.Counter()
        self.ends: list[tuple[str, float, float]] = []  # URL, and between which times it ended by force
        self.troubles: list[str] = []
        self.probes = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def begin(self, count: int) -> None:
        for _ in range(count):
            self._born()
        await self._declare()
        for worker in self.workers:
            await self._until(worker, {"serving"})
            worker.at_work = True

    async def change(self, wanted: Iterable[str]) -> None:
        """Begin one change of these kinds, if there is one that leaves enough workers, and not too many."""
        idle = [worker for worker in self.workers if worker.at_work]
        kinds = [
            kind for kind in wanted if (len(self.workers) < MOST if kind == "join" else len(idle) > FEWEST)
        ]
        if not kinds:
            self.done["skipped"] += 1
            return
        kind = self._choice.choice(kinds)
        self.done[kind] += 1
        if kind == "join":
            action = self._join()
        else:
            worker = self._choice.choice(idle)
            worker.at_work = False
            action = {"drain": self._drain, "restart": self._restart, "crash": self._crash}[kind](worker)
        task = asyncio.ensure_future(self._reported(kind, action))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _reported(self, kind: str, action: Coroutine[Any, Any, None]) -> None:
        try:
            await action
        except Exception as error:
            self.troubles.append(f"{kind}: {type(error).__name__}: {error}")

    async def _join(self) -> None:
        late = self._choice.random() < 0.5
        worker = self._born(start=not late)
        await self._declare()
        if late:  # declared, but not up yet
            await asyncio.sleep(0.3)
            self._start(worker)
        await self._until(worker, {"serving"})
        worker.at_work = True

    async def _drain(self, worker: Worker) -> None:
        if isinstance(self._source, ApiSource) or self._choice.random() < 0.5:
            worker.leaving = True
        else:
            self.workers.remove(worker)
        await self._declare()
        await self._until(worker, {None, "left"})
        await self._gone(worker)
        assert worker.process is not None
        worker.process.stop()
        await self._trap(worker)

    async def _restart(self, worker: Worker) -> None:
        begun = time.monotonic()
        assert worker.process is not None
        await asyncio.to_thread(worker.process.stop)
        self.ends.append((worker.url, begun, time.monotonic()))
        await self._return(worker)

    async def _crash(self, worker: Worker) -> None:
        begun = time.monotonic()
        assert worker.process is not None
        await asyncio.to_thread(worker.process.kill)
        self.ends.append((worker.url, begun, time.monotonic()))
        await asyncio.sleep(AWAY_SECS / 2)
        if self._choice.random() < 0.5:  # for good
            await self._gone(worker)
            await self._until(worker, {None})
            await self._trap(worker)
            return
        worker.ready = False
        await self._declare()
        await asyncio.sleep(AWAY_SECS / 2)
        await self._return(worker)

    async def _return(self, worker: Worker) -> None:
        self._start(worker)
        worker.ready = True
        worker.incarnation += 1
        await self._declare()
        await self._until(worker, {"serving"})
        worker.at_work = True

    async def _trap(self, worker: Worker) -> None:
        late = await Trap(worker).watch()
        self.probes += len(late)
        if late:
            times = ", ".join(f"{seconds:.1f}" for seconds in late)
            self.troubles.append(f"{worker.url} was connected to {times} s after it had left")

    async def _gone(self, worker: Worker) -> None:
        if worker in self.workers:
            self.workers.remove(worker)
            await self._declare()

    def _born(self, start: bool = True) -> Worker:
        worker = Worker(next(self._addresses), self._port)
        if start:
            self._start(worker)
        self.workers.append(worker)
        return worker

    def _start(self, worker: Worker) -> None:
        worker.process = self._forker.start(worker.host, worker.port)

    async def _declare(self) -> None:
        async with self._declaring:  # an older list must not come after a newer one
            await asyncio.to_thread(self._source.declare, list(self.workers))

    async def _until(self, worker: Worker, states: set[str | None]) -> None:
        """Until the router sees the worker like this; None: it does not know it."""
        deadline = time.monotonic() + SETTLE_SECS
        while True:
            state = (await asyncio.to_thread(self._router.states)).get(worker.url)
            if state in states:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{worker.url} is {state} after {SETTLE_SECS:g} s, and not {states}")
            await asyncio.sleep(0.1)

    async def settle(self) -> None:
        """Until all changes that have begun are over, and the fleet is what was declared."""
        while self.tasks:
            await asyncio.wait(self.tasks)
        declared = {worker.url: "serving" for worker in self.workers}
        deadline = time.monotonic() + SETTLE_SECS
        while (there := await asyncio.to_thread(self._router.states)) != declared:
            if time.monotonic() > deadline:
                self.troubles.append(f"the fleet is {there}, and declared is {declared}")
                return
            await asyncio.sleep(0.1)


# One run


def free_port() -> int:
    with socket.create_server(("127.0.1.1", 0)) as server:
        return int(server.getsockname()[1])


def is_excused(failure: dict[str, Any], ends: list[tuple[str, float, float]]) -> bool:
    """Whether the response was cut because its worker ended while the client was reading it."""
    return failure["what"] == "cut" and any(
        url == failure["worker"]
        and begun < failure["ended"]
        and ended > failure["begun"] - MARGIN_SECS
        and failure["ended"] - ended < MARGIN_SECS
        for url, begun, ended in ends
    )


async def run(name: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    port = free_port()
    source: Any = SOURCES[name](folder, port)
    router = Router([*source.arguments(), "--policy", args.policy, *args.router], folder / f"{name}.log")
    if isinstance(source, ApiSource):
        source.router = router
    try:
        with WorkerForker(folder / "workers.log") as forker:
            return await _run(name, args, Fleet(forker, source, router, port, args.seed), router)
    finally:
        router.stop()
        source.close()


async def _run(name: str, args: argparse.Namespace, fleet: Fleet, router: Router) -> dict[str, Any]:
    await fleet.begin((FEWEST + MOST) // 2)
    load = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HERE / "churn_load.py"), "--port", str(router.port), "--seed", str(args.seed)),
        *("--requests", str(args.requests), "--clients", str(args.clients), "--seconds", str(args.seconds)),
        *("--bodies", str(args.bodies)),
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    output = asyncio.ensure_future(load.communicate())
    try:
        begun = time.monotonic()
        changes = 0
        while not output.done():
            changes += 1
            await fleet.change(args.kinds)
            await asyncio.wait([output], timeout=max(0.0, begun + changes * args.period - time.monotonic()))
    finally:
        if load.returncode is None:
            load.kill()
    out, _ = await output
    lines = [json.loads(line) for line in out.splitlines()]
    failures, (end,) = [line for line in lines if "what" in line], [x for x in lines if "counts" in x]
    await fleet.settle()
    deadline = time.monotonic() + 10
    while (left := sum(router.loads().values()) + router.metric("in_flight")) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    excused = [failure for failure in failures if is_excused(failure, fleet.ends)]
    lost = [failure for failure in failures if failure not in excused]
    counts = end["counts"]
    return {
        "source": name,
        "requests": counts["sent"],
        "seconds": end["seconds"],
        "ok": counts.get("whole", 0) + counts.get("streams", 0),
        "streams": counts.get("streams", 0),
        "attempts": counts.get("attempts", 0),
        "cut": len(excused),
        "lost": lost,
        "changes": dict(fleet.done),
        "load_left": left,
        "probes": fleet.probes,
        "troubles": fleet.troubles,
    }


COLUMNS = (
    "| source | requests | per second | joins, drains, restarts, crashes | served whole | retries | cut by a "
    "crash | lost | load left | late probes |"
)


def row_of(result: dict[str, Any]) -> str:
    changes = ", ".join(str(result["changes"].get(kind, 0)) for kind in KINDS)
    cells = [
        result["source"],
        f"{result['requests']:,}",
        f"{result['requests'] / result['seconds']:,.0f}",
        changes,
        f"{result['ok']:,}",
        f"{result['attempts'] - result['ok']:,}",
        str(result["cut"]),
        str(len(result["lost"])),
        f"{result['load_left']:g}",
        str(result["probes"]),
    ]
    return "| " + " | ".join(cells) + " |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", nargs="+", choices=sorted(SOURCES), default=sorted(SOURCES))
    parser.add_argument("--requests", type=int, default=20_000, help="for each source")
    parser.add_argument(
        "--seconds", type=float, default=360, help="the longest that the load of one may take"
    )
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument(
        "--bodies",
        type=int,
        default=0,
        help="how many different requests there are; 0: all differ, so that none is quarantined for another",
    )
    parser.add_argument("--period", type=float, default=1.0, help="seconds between two changes")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of changes")
    parser.add_argument("--policy", default="round_robin")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="a file for all that was found")
    parser.add_argument("--keep", type=Path, help="a folder for the logs, which are deleted otherwise")
    parser.add_argument("router", nargs="*", help="more arguments of the router, after --")
    args = parser.parse_args(argv)
    results: Rows = []
    print(COLUMNS)
    print("|" + "---|" * (COLUMNS.count("|") - 1), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = args.keep or Path(name)
        for source in args.source:
            results.append(asyncio.run(run(source, args, folder)))
            print(row_of(results[-1]), flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps(results, indent=1))
    wrong = False
    for result in results:
        sentences = [f"lost: {json.dumps(failure)}" for failure in result["lost"][:20]] + result["troubles"]
        if result["load_left"]:
            sentences.append(f"{result['load_left']:g} requests are still counted")
        for sentence in sentences:
            wrong = True
            print(f"churn.py: {result['source']}: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
