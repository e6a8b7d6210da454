"""The slow twin of cpp/index/prefix_table.h: dictionaries in order of use, times in seconds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

MAX_HOLDERS = 64
SHARDS = 64


@dataclass
class Holder:
    tokens: int
    on_gpu: bool
    updated: float


class PrefixTable:
    def __init__(self, max_entries: int, ttl: float) -> None:
        self.max_entries, self.ttl = max_entries, ttl
        self.workers: set[int] = set()
        self.prefixes: dict[bytes, dict[int, Holder]] = {}  # the least recently used first
        self.hits = self.evictions = 0

    def set_workers(self, workers: list[int]) -> None:
        for gone in self.workers - set(workers):
            self.remove_all_of(gone)
        self.workers = set(workers)

    def put(self, prefix: bytes, worker: int, tokens: int | None, on_gpu: bool, now: float) -> bool:
        if worker not in self.workers:
            return False
        holders = self._live(self.prefixes.pop(prefix, {}), now)
        self.prefixes[prefix] = holders
        if worker not in holders and len(holders) == MAX_HOLDERS:
            del holders[min(holders, key=lambda one: holders[one].updated)]
            self.evictions += 1
        before = holders[worker].tokens if worker in holders else 16
        holders[worker] = Holder(before if tokens is None else tokens, on_gpu, now)
        if self.entries() > self.max_entries:
            self._evict(self.max_entries - self.max_entries // 10)
        return True

    def _evict(self, goal: int) -> None:
        while self.entries() > goal:
            counts = Counter(worker for holders in self.prefixes.values() for worker in holders)
            worker = min(counts, key=lambda one: (-counts[one], one))
            oldest = next(holders for holders in self.prefixes.values() if worker in holders)
            del oldest[worker]
            self.evictions += 1
            self._drop_empty()

    def remove(self, prefix: bytes, worker: int) -> bool:
        found = self.prefixes.get(prefix, {}).pop(worker, None)
        self._drop_empty()
        return found is not None

    def remove_all_of(self, worker: int) -> int:
        removed = sum(holders.pop(worker, None) is not None for holders in self.prefixes.values())
        self._drop_empty()
        return removed

    def clear(self) -> tuple[int, int]:
        cleared = self.entries(), len({worker for holders in self.prefixes.values() for worker in holders})
        self.prefixes.clear()
        return cleared

    def find(self, prefix: bytes, now: float) -> list[tuple[int, int, bool]]:
        held = self.peek(prefix, now)
        if prefix in self.prefixes:
            self.prefixes[prefix] = self._live(self.prefixes.pop(prefix), now)
        self._drop_empty()
        self.hits += bool(held)
        return held

    def peek(self, prefix: bytes, now: float) -> list[tuple[int, int, bool]]:
        holders = self._live(self.prefixes.get(prefix, {}), now)
        return [(worker, holder.tokens, holder.on_gpu) for worker, holder in holders.items()]

    def sweep(self, now: float) -> int:
        """Of each shard those that were not used for longest, up to the first that holds something."""
        removed = 0
        for shard in range(SHARDS):
            for prefix in [prefix for prefix in self.prefixes if prefix[0] % SHARDS == shard]:
                if self._live(self.prefixes[prefix], now):
                    break
                del self.prefixes[prefix]
                removed += 1
        return removed

    def entries(self) -> int:
        return sum(len(holders) for holders in self.prefixes.values())

    def stats(self) -> tuple[int, int, int, int]:
        return len(self.prefixes), self.entries(), self.hits, self.evictions

    def _live(self, holders: dict[int, Holder], now: float) -> dict[int, Holder]:
        return {worker: holder for worker, holder in holders.items() if now - holder.updated < self.ttl}

    def _drop_empty(self) -> None:
        self.prefixes = {prefix: holders for prefix, holders in self.prefixes.items() if holders}
