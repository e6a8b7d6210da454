"""The slow twin of cpp/index/stick_table.h: a dictionary in order of use, times in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

Place = Callable[[int | None, dict[int, int]], int | None]


class StickTable:
    def __init__(self, max_entries: int, ttl: float) -> None:
        self.max_entries, self.ttl = max_entries, ttl
        self.entries: dict[str, tuple[int, float]] = {}  # name -> worker, last use; least recently used first

    def find_or_stick(self, name: str, now: float, place: Place) -> int | None:
        self._expire(now)
        known = self.entries[name][0] if name in self.entries else None
        worker = place(known, dict(Counter(worker for worker, _ in self.entries.values())))
        if worker is not None:
            self.stick(name, worker, now)
        return worker

    def stick(self, name: str, worker: int, now: float) -> None:
        self._expire(now)
        self.entries.pop(name, None)
        if len(self.entries) >= self.max_entries:
            self.entries.pop(next(iter(self.entries)))
        self.entries[name] = (worker, now)

    def find(self, name: str, now: float) -> int | None:
        self._expire(now)
        if name not in self.entries:
            return None
        worker, _ = self.entries.pop(name)
        self.entries[name] = (worker, now)
        return worker

    def forget(self, name: str, now: float) -> bool:
        self._expire(now)
        return self.entries.pop(name, None) is not None

    def __len__(self) -> int:
        return len(self.entries)

    def _expire(self, now: float) -> None:
        self.entries = {name: entry for name, entry in self.entries.items() if now - entry[1] < self.ttl}
