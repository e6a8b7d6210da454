#!/usr/bin/env python3
"""Whom the quarantine of requests hits, and what poison costs: the router's own class in virtual time.

    PYTHONPATH=build/release/python:. python benchmarks/quarantine_simulation.py            all, minutes
    ... quarantine_simulation.py --smoke                                                    seconds
    ... quarantine_simulation.py --parts innocent --workers 6 --seeds 100                   one cell, closely

`innocent`: workers crash by chance under clients that do no harm. A row is a fleet, its clients, their
bodies, and how many workers crash how far apart. `kept` is the share of a client's requests, from the first
crash to 20 s after the last one, that the quarantine did not reject or deny a retry, on average over the
clients; `worst` is that of the worst run. `restricted` is the share of clients that were ever rejected.

`poison`: one sender of requests that end their worker, beside clients that do no harm, for ten minutes;
workers are back after 30 s. Printed are the workers that it has cost after one minute and after ten, what the
others kept, and the share of their requests that was served in all. Ends with status 1 if innocent clients
keep less than 0.95 in a row of the first part.

The model: requests go to the worker with the fewest, take one to three seconds, and are sent to one more
worker when theirs is lost. Each client has some under way at a time, and waits 0.2 s after a failure. A death
is reported 20 ms after the loss. Runs with builds of older commits too, to compare rules.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vllm_router import _core_testing as testing

RESTART_SECONDS = 30.0
REPORT_SECONDS = 0.02  # from a loss to the failed health check
KILL_SECONDS = 0.05  # from the arrival of poison to the death
PAUSE_SECONDS = 0.2  # of a client after a failure
MAX_ATTEMPTS = 5
BODY_BYTES = 100
KNOWS_AGES = "sent" in str(testing.RequestQuarantine.report_loss.__doc__)  # older builds do not
SHARE_TO_KEEP = 0.95


@dataclass
class Client:
    number: int
    concurrency: int
    bodies: Iterator[int]
    poison: bool = False
    served: int = 0
    failed: int = 0  # as they would have without the quarantine
    rejected: int = 0
    restricted: bool = False


@dataclass(eq=False)
class Request:
    client: Client
    digest: int
    entered: bool = False
    losses: int = 0
    sent: float = 0.0
    attempted: set[int] = field(default_factory=set)


class Fleet:
    """A router and its workers."""

    def __init__(self, workers: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.quarantine = testing.RequestQuarantine()
        self.now = 1000.0
        self.began = self.now
        self.measures = True  # what clients get is counted
        self.deaths: list[float] = []
        self.at: list[dict[Request, None]] = [{} for _ in range(workers)]  # in flight
        self.alive = [True] * workers
        self.known_alive = [True] * workers
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def add(self, client: Client) -> None:
        for _ in range(client.concurrency):
            self.after(self.random.uniform(0, 1), lambda: self.arrive(client))

    def arrive(self, client: Client) -> None:
        request = Request(client, next(client.bodies))
        quarantine = self.quarantine
        if quarantine.active:
            known = quarantine.may_know(BODY_BYTES) and quarantine.is_suspected(request.digest, self.now)
            entry = "busy" if known else quarantine.enter(client.number, self.now)
            client.restricted |= not known and entry == "busy"
            request.entered = entry == "entered"
            if entry == "busy":
                self.end(request, "rejected")
                return
        self.send(request)

    def send(self, request: Request) -> None:
        """To the worker with the fewest, of those that did not fail."""
        for _ in range(MAX_ATTEMPTS):
            up = [one for one, known in enumerate(self.known_alive) if known]
            choice = [one for one in up if one not in request.attempted] or up
            if not choice:
                break
            worker = min(choice, key=lambda one: (len(self.at[one]), self.random.random()))
            request.attempted.add(worker)
            if self.alive[worker]:
                self.at[worker][request] = None
                request.sent = self.now + self.random.uniform(0, 1e-6)
                self.after(
                    KILL_SECONDS if request.client.poison else self.random.uniform(1, 3),
                    lambda worker=worker: self.serve(request, worker),
                )
                return
            self.report(worker)
        self.end(request, "failed")

    def serve(self, request: Request, worker: int) -> None:
        if request not in self.at[worker]:
            return
        if request.client.poison:
            self.crash(worker)
            return
        del self.at[worker][request]
        if self.quarantine.may_forget(BODY_BYTES):
            self.quarantine.report_success(request.digest, worker, self.now)
        self.end(request, "served")

    def crash(self, worker: int) -> None:
        if not self.alive[worker]:
            return
        self.alive[worker] = False
        self.deaths.append(self.now)
        lost, self.at[worker] = self.at[worker], {}
        self.after(REPORT_SECONDS, lambda: self.report(worker))
        self.after(RESTART_SECONDS, lambda: self.restart(worker))
        for request in lost:
            client = request.client
            loss = (request.digest, BODY_BYTES, worker, client.number, "id", self.now)
            self.quarantine.report_loss(*loss, *([request.sent] if KNOWS_AGES else []))
            request.losses += 1
            if request.losses > 1:
                self.end(request, "failed")
            elif request.entered or self.quarantine.is_suspected(request.digest, self.now):
                self.end(request, "rejected")
            else:
                self.send(request)

    def report(self, worker: int) -> None:
        self.known_alive[worker] = self.alive[worker]
        if self.alive[worker]:
            return
        self.quarantine.report_down(worker, self.now)

    def restart(self, worker: int) -> None:
        self.alive[worker] = self.known_alive[worker] = True

    def end(self, request: Request, how: str) -> None:
        client = request.client
        if request.entered:
            self.quarantine.leave(client.number)
        if self.measures:
            how = how if how == "served" or any(self.alive) else "failed"
            setattr(client, how, getattr(client, how) + 1)
        pause = 0.0 if how == "served" else self.random.uniform(0.5, 1.5) * PAUSE_SECONDS
        self.after(pause, lambda: self.arrive(client))


def bodies(kind: str, client: int, seed: int) -> Iterator[int]:
    """Of a client: each its own, one of twenty, or one for all."""
    if kind == "own":
        return itertools.count(client * 10_000_000)
    if kind == "twenty":
        choice = random.Random(seed * 1000 + client)
        return iter(lambda: 1 + choice.randrange(20), 0)
    return itertools.repeat(1)


def add_clients(fleet: Fleet, count: int, under_way: int, kind: str, seed: int) -> list[Client]:
    shares = [under_way // count + (number < under_way % count) for number in range(count)]
    clients = [
        Client(number + 1, max(1, share), bodies(kind, number + 1, seed))
        for number, share in enumerate(shares)
    ]
    for client in clients:
        fleet.add(client)
    return clients


def share(clients: list[Client], of: Callable[[Client], int]) -> float:
    """Of the requests of a client, on average over the clients."""
    shares = [of(one) / max(1, one.served + one.failed + one.rejected) for one in clients]
    return sum(shares) / max(1, len(shares))


def kept(clients: list[Client]) -> float:
    return 1 - share(clients, lambda client: client.rejected)


def served(clients: list[Client]) -> float:
    return share(clients, lambda client: client.served)


def run_innocent(cell: dict[str, object], seed: int) -> list[Client]:
    workers, count = int(str(cell["workers"])), int(str(cell["clients"]))
    fleet = Fleet(workers, seed)
    per_worker = int(str(cell["per_worker"]))
    clients = add_clients(fleet, count, workers * per_worker, str(cell["bodies"]), seed)
    fleet.measures = False
    fleet.run(4)
    fleet.measures = True
    for number in range(int(str(cell["crashes"]))):
        if number > 0:
            fleet.run(float(str(cell["apart"])))
        living = [worker for worker, alive in enumerate(fleet.alive) if alive]
        if living:
            fleet.crash(fleet.random.choice(living))
    fleet.run(20)
    return clients


def measure_innocent(cell: dict[str, object], seeds: int) -> dict[str, object]:
    runs = [run_innocent(cell, seed) for seed in range(seeds)]
    everybody = [client for clients in runs for client in clients]
    return {
        **cell,
        "kept": round(kept(everybody), 4),
        "worst": round(min(kept(clients) for clients in runs), 4),
        "restricted": round(sum(client.restricted for client in everybody) / len(everybody), 5),
    }


POISONS = {
    # How many are sent at a time, whether each has a body of its own, and how many harmless requests the
    # sender has under way beside them.
    "one body": (1, False, 0),
    "varying": (1, True, 0),
    "varying, 3 at a time": (3, True, 0),
    "varying, beside 2 harmless": (1, True, 2),
}


def run_poison(cell: dict[str, object], seed: int) -> tuple[list[int], list[Client]]:
    workers, (concurrency, varies, harmless) = int(str(cell["workers"])), POISONS[str(cell["poison"])]
    fleet = Fleet(workers, seed)
    others = add_clients(fleet, 10, workers * 4, "own", seed) if cell["others"] else []
    fleet.run(4)
    start = fleet.now
    sender = 1_000
    numbers = itertools.count(sender * 10_000_000) if varies else itertools.repeat(2)
    fleet.add(Client(sender, concurrency, numbers, poison=True))
    fleet.add(Client(sender, harmless, itertools.count(2_000 * 10_000_000)))
    fleet.run(600)
    return [sum(death < start + seconds for death in fleet.deaths) for seconds in (60, 600)], others


def measure_poison(cell: dict[str, object], seeds: int) -> dict[str, object]:
    runs = [run_poison(cell, seed) for seed in range(seeds)]
    others = [client for _, clients in runs for client in clients]
    return {
        **cell,
        "lost_60s": round(sum(lost[0] for lost, _ in runs) / seeds, 1),
        "lost_600s": round(sum(lost[1] for lost, _ in runs) / seeds, 1),
        "served": round(served(others), 4),
        "kept": round(kept(others), 4),
        "restricted": round(sum(client.restricted for client in others) / max(1, len(others)), 5),
    }


def cells(part: str, args: argparse.Namespace) -> list[dict[str, object]]:
    if part == "poison":
        return [
            {"part": part, "workers": workers, "poison": poison, "others": others}
            for workers, poison, others in itertools.product(args.workers, POISONS, [False, True])
            if workers <= args.max_poisoned
        ]
    names = ["workers", "clients", "per_worker", "bodies", "crashes", "apart"]
    grid = itertools.product(*(getattr(args, name) for name in names))
    rows = [{"part": part, **dict(zip(names, cell, strict=True))} for cell in grid]
    return [row for row in rows if row["crashes"] != 1 or row["apart"] == args.apart[0]]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=["innocent", "poison"], default=["innocent", "poison"])
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 3, 4, 6, 16, 64])
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 3, 10, 100])
    parser.add_argument("--per-worker", nargs="+", type=int, default=[1, 13], help="requests under way")
    parser.add_argument("--bodies", nargs="+", choices=["own", "twenty", "one"], default=["own", "one"])
    parser.add_argument("--crashes", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument(
        "--apart", nargs="+", type=float, default=[0.1, 1, 20], help="seconds between crashes"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-poisoned", type=int, default=16, help="no larger fleet for poison")
    parser.add_argument("--smoke", action="store_true", help="a few cells, seconds")
    args = parser.parse_args(argv)
    if args.smoke:
        args.workers, args.clients, args.per_worker = [6], [1, 10], [13]
        args.crashes, args.apart, args.seeds, args.max_poisoned = [2, 4], [1.0], 2, 6
    lowest = 1.0
    restricted, rows = 0.0, 0
    for part in args.parts:
        for cell in cells(part, args):
            row = (measure_innocent if part == "innocent" else measure_poison)(cell, args.seeds)
            print(json.dumps(row), flush=True)
            if part == "innocent":
                lowest = min(lowest, float(str(row["kept"])))
                restricted, rows = restricted + float(str(row["restricted"])), rows + 1
    false_alarms = round(restricted / max(1, rows), 6)
    print(json.dumps({"part": "innocent, all rows", "kept": lowest, "restricted": false_alarms}))
    return int(lowest < SHARE_TO_KEEP)


if __name__ == "__main__":
    sys.exit(main())
