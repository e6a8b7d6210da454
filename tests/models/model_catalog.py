"""Who serves what, rule by rule; the twin of cpp/worker/model_catalog.h."""

from __future__ import annotations

import dataclasses

MAX_PER_WORKER = 1024
MAX_NAME = 256
MAX_NAMES = 4096


def is_name(name: str) -> bool:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    return 1 <= size <= MAX_NAME and not any(ord(c) < 0x20 or ord(c) == 0x7F for c in name)


@dataclasses.dataclass
class Catalog:
    """Workers are base URLs, in the order of the fleet."""

    said: dict[str, list[tuple[str, str]]] = dataclasses.field(default_factory=dict)
    awaited: set[str] = dataclasses.field(default_factory=set)  # asked, and silent since
    expected: list[str] = dataclasses.field(default_factory=list)
    spread: bool = False
    parents: dict[str, str] = dataclasses.field(default_factory=dict)  # as the first that lists a name has it

    def say(self, base: str, cards: list[tuple[str, str]]) -> None:
        kept: dict[str, str] = {}
        count = 0
        for name, parent in cards:
            fits = count < MAX_PER_WORKER and is_name(name) and (not parent or is_name(parent))
            if fits and name not in kept:
                kept[name] = parent
                count += 1
        self.said[base] = list(kept.items())
        self.awaited.discard(base)

    def wait_for(self, base: str) -> None:
        if base not in self.said:
            self.awaited.add(base)

    def may_serve_anything(self, fleet: list[str]) -> list[str]:
        """Of those that are awaited only where the others' lists leave no doubt."""
        others = [worker for worker in fleet if worker not in self.awaited]
        lists = {frozenset(name for name, _ in self.said[worker]) for worker in others if worker in self.said}
        return [w for w in fleet if w not in self.said and (w not in self.awaited or len(lists) <= 1)]

    def listed(self, fleet: list[str]) -> dict[str, list[str]]:
        """The workers that list a name."""
        names: dict[str, list[str]] = {}
        for worker in fleet:
            for name, _ in self.said.get(worker, []):
                names.setdefault(name, []).append(worker)
        return names

    def pools(self, fleet: list[str]) -> dict[str, list[str]]:
        """The workers that a request for a name may go to."""
        unknown = self.may_serve_anything(fleet)
        names = self.listed(fleet)
        return {
            name: [
                worker
                for worker in fleet
                if worker in workers or worker in unknown or worker in self.family(fleet, name)
            ]
            for name, workers in names.items()
        }

    def family(self, fleet: list[str], name: str) -> list[str]:
        """The workers of an adapter's parent, where they can load it."""
        return self.listed(fleet).get(self.parents.get(name, ""), []) if self.spread else []

    def residents(self, fleet: list[str]) -> dict[str, list[str]]:
        """The workers that have an adapter which others can load."""
        return {
            name: workers
            for name, workers in self.listed(fleet).items()
            if any(worker in self.said and worker not in workers for worker in self.family(fleet, name))
        }

    def decides(self, fleet: list[str]) -> bool:
        """A name can make a difference, if none is remembered from workers that left."""
        pools = self.pools(fleet)
        asleep = set(self.expected) - set(pools)
        silent = [worker for worker in fleet if worker not in self.said]
        any_said = len(silent) < len(fleet)
        return (
            any(pool != fleet for pool in pools.values())
            or bool(self.residents(fleet))
            or bool(asleep and (any_said or not silent))
        )
