"""Which workers of prefill/decode are registered, by a look at all of them each time; the twin of
cpp/disaggregation/pd_registrations.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Told = dict[str, Any]
Change = tuple[str, Told]

SILENT_NS = 5_000_000_000


@dataclass
class Worker:
    told: Told
    heard_ns: int
    silent: bool = False


class PdRegistrations:
    def __init__(self, forget_ns: int, max_instances: int) -> None:
        self.forget_ns = forget_ns
        self.max_instances = max_instances
        self.workers: list[Worker] = []
        self.now_ns = 0

    def mode(self) -> str | None:
        modes = {worker.told["mode"] for worker in self.workers} - {None}
        assert len(modes) <= 1
        return next(iter(modes), None)

    def eligible(self, role: str) -> int:
        return sum(worker.told["role"] == role and not worker.silent for worker in self.workers)

    def register(self, told: Told, now_ns: int) -> tuple[str, list[Change]]:
        changes = self.expire(now_ns)
        known = [worker for worker in self.workers if worker.told["http_address"] == told["http_address"]]
        if known and known[0].told["role"] != told["role"]:
            return "other_role", changes
        if told["mode"] is not None and self.mode() not in (None, told["mode"]):
            return "other_mode", changes
        if not known:
            if len(self.workers) >= self.max_instances:
                return "full", changes
            self.workers.append(Worker(told, self.now_ns))
            return "taken", [*changes, ("added", told)]
        worker = known[0]
        if worker.silent:
            changes.append(("returned", told))
        if worker.told != told:
            changes.append(("updated", told))
        # Those heard at the same time keep the order in which they were heard.
        self.workers.remove(worker)
        self.workers.append(Worker(told, self.now_ns))
        return "taken", changes

    def expire(self, now_ns: int) -> list[Change]:
        self.now_ns = max(self.now_ns, now_ns)
        removed = [worker for worker in self.workers if self.now_ns - worker.heard_ns >= self.forget_ns]
        self.workers = [worker for worker in self.workers if worker not in removed]
        silenced = [
            worker
            for worker in self.workers
            if not worker.silent and self.now_ns - worker.heard_ns >= SILENT_NS
        ]
        for worker in silenced:
            worker.silent = True
        return [("removed", one.told) for one in removed] + [("silenced", one.told) for one in silenced]

    def next_expiry_ns(self) -> int | None:
        due = [
            worker.heard_ns + (self.forget_ns if worker.silent else min(SILENT_NS, self.forget_ns))
            for worker in self.workers
        ]
        return min(due, default=None)
