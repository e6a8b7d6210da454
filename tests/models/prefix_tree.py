"""The slow twin of cpp/index/prefix_tree.h: a dictionary from every node's whole prefix to who owns it.

Works on anything that slices and hashes: bytes for the StringTree, tuples of ids for the TokenTree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

STARTS_PER_HALVING = 1024
MOST_ENDS = 63  # per node, of different rests


@dataclass
class Use:
    created: int
    last: int
    hits: int
    priority: int


ORDERS = {
    "lru": lambda use: use.last,
    "lfu": lambda use: (use.hits, use.last),
    "fifo": lambda use: use.created,
    "mru": lambda use: -use.last,
    "filo": lambda use: -use.created,
    "priority": lambda use: (use.priority, use.last),
}


@dataclass
class Node:
    owners: dict[Hashable, Use] = field(default_factory=dict)
    ends: deque[Any] = field(default_factory=lambda: deque(maxlen=MOST_ENDS))
    starts: int = 0
    lasting: set[Hashable] = field(default_factory=set)  # owners who have it for good
    claims: dict[Hashable, set[Hashable]] = field(default_factory=dict)  # by owner: open texts that end here


def common(a: Any, b: Any) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count


def character_starts(text: bytes) -> list[int]:
    """Where characters begin, the end of the text included; a byte that is no UTF-8 is one."""
    starts, at = [], 0
    while at < len(text):
        starts.append(at)
        lead = text[at]
        follow = 0 if lead < 0xC0 else 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        at += 1
        while follow and at < len(text) and text[at] & 0xC0 == 0x80:
            at, follow = at + 1, follow - 1
    return [*starts, len(text)]


class PrefixTree:
    def __init__(self, order: str = "lru", max_size: int = 1 << 26, page: int = 1, unit: int = 1) -> None:
        self.key, self.max_size, self.page, self.unit = ORDERS[order], max_size, page, unit
        self.nodes: dict[Any, Node] = {}
        self.tick = self.starts = self.counted = self.evicted = 0

    def insert(
        self,
        text: Any,
        worker: Hashable,
        *,
        is_start: bool = False,
        priority: int = 0,
        claim: Hashable = None,
    ) -> None:
        whole = text[: len(text) // self.page * self.page]
        if not whole or len(whole) * self.unit > self.max_size:
            return
        self.tick += 1
        depth = max((self._common(whole, prefix) for prefix in self.nodes), default=0)
        if depth and whole[:depth] not in self.nodes:
            below = self.nodes[min((p for p in self.nodes if p[:depth] == whole[:depth]), key=len)]
            owners = {owner: replace(use) for owner, use in below.owners.items()}
            self.nodes[whole[:depth]] = Node(owners, starts=below.starts, lasting={*below.lasting})
        for prefix in self.path(whole):
            use = self.nodes[prefix].owners.setdefault(worker, Use(self.tick, 0, 0, priority))
            use.last, use.hits, use.priority = self.tick, use.hits + 1, max(use.priority, priority)
        if depth < len(whole):
            added = (len(whole) - depth) * self.unit
            while self.size() + added > self.max_size:
                self.evict_one(kept=(worker, whole[:depth]))
            self.nodes[whole] = Node({worker: Use(self.tick, self.tick, 1, priority)})
        ends, rest = self.nodes[whole].ends, text[len(whole) :]
        if rest not in ends:
            ends.append(rest)
        if is_start:
            self._count_start(whole)
        if claim is None:
            self._make_last(whole, worker)
        elif worker not in self.nodes[whole].lasting:
            self.nodes[whole].claims.setdefault(worker, set()).add(claim)

    def _make_last(self, text: Any, worker: Hashable) -> None:
        for prefix in self.path(text):
            if worker in self.nodes[prefix].owners:
                self.nodes[prefix].lasting.add(worker)

    def _find(self, claim: Hashable) -> tuple[Any, Hashable] | None:
        for prefix, node in self.nodes.items():
            for worker, claims in node.claims.items():
                if claim in claims:
                    return prefix, worker
        return None

    def confirm(self, claim: Hashable) -> None:
        """The worker has the text for good, unless its end was given up meanwhile."""
        if found := self._find(claim):
            prefix, worker = found
            self.nodes[prefix].claims[worker].remove(claim)
            self._make_last(prefix, worker)

    def withdraw(self, claim: Hashable) -> None:
        """From its end upwards, what neither lasts nor belongs to another."""
        if not (found := self._find(claim)):
            return
        text, worker = found
        self.nodes[text].claims[worker].remove(claim)
        for prefix in reversed(self.path(text)):
            node = self.nodes[prefix]
            is_leaf = (worker, prefix) in self.leaves({worker})
            if not is_leaf or worker in node.lasting or node.claims.get(worker):
                break
            self._drop(worker, prefix)

    def _count_start(self, whole: Any) -> None:
        for prefix in self.path(whole):
            self.nodes[prefix].starts += 1
        self.starts += 1
        self.counted += 1
        if self.counted % STARTS_PER_HALVING == 0:
            self.starts //= 2
            for node in self.nodes.values():
                node.starts //= 2

    def leaves(self, workers: Any = None) -> list[tuple[Hashable, Any]]:
        return [
            (worker, prefix)
            for prefix, node in self.nodes.items()
            for worker in node.owners
            if (workers is None or worker in workers)
            and not any(
                worker in other.owners and len(longer) > len(prefix) and longer[: len(prefix)] == prefix
                for longer, other in self.nodes.items()
            )
        ]

    def evict_one(self, kept: Any = None, workers: Any = None) -> None:
        worker, prefix = min(
            (leaf for leaf in self.leaves(workers) if leaf != kept),
            key=lambda leaf: self.key(self.nodes[leaf[1]].owners[leaf[0]]),
        )
        self._drop(worker, prefix)
        self.evicted += 1

    def _drop(self, worker: Hashable, prefix: Any) -> None:
        if self.nodes[prefix].claims.pop(worker, None):
            self._make_last(prefix, worker)
        self.nodes[prefix].lasting.discard(worker)
        del self.nodes[prefix].owners[worker]
        if not self.nodes[prefix].owners:
            del self.nodes[prefix]

    def evict_worker(self, worker: Hashable, max_size: int) -> int:
        before = self.size_of(worker)
        while self.size_of(worker) > max_size:
            self.evict_one(workers={worker})
        return before - self.size_of(worker)

    def remove_worker(self, worker: Hashable) -> None:
        for prefix in [prefix for prefix, node in self.nodes.items() if worker in node.owners]:
            self._drop(worker, prefix)

    def path(self, text: Any) -> list[Any]:
        return [p for p in sorted(self.nodes, key=len) if text[: len(p)] == p]

    def match(self, text: Any) -> dict[Hashable, int]:
        found: dict[Hashable, int] = {}
        for prefix, node in self.nodes.items():
            depth = self._common(text, prefix)
            if isinstance(text, bytes):
                depth = max(start for start in character_starts(text) if start <= depth)
            for worker in node.owners if depth else ():
                found[worker] = max(found.get(worker, 0), depth)
        return found

    def ends(self, text: Any) -> list[int]:
        return sorted(
            len(prefix) + len(rest)
            for prefix in self.path(text)
            for rest in self.nodes[prefix].ends
            if text[len(prefix) : len(prefix) + len(rest)] == rest
        )

    def starts_at(self, text: Any, depth: int) -> int:
        if depth == 0:
            return self.starts
        passed = [prefix for prefix in self.nodes if self._common(text, prefix) >= depth]
        return self.nodes[min(passed, key=len)].starts if passed else 0

    def size(self) -> int:
        """Of distinct text."""
        return self.unit * sum(
            len(p) - max((len(q) for q in self.nodes if q != p and p[: len(q)] == q), default=0)
            for p in self.nodes
        )

    def size_of(self, worker: Hashable) -> int:
        owned = [prefix for prefix, node in self.nodes.items() if worker in node.owners]
        return self.unit * sum(
            len(p) - max((len(q) for q in owned if q != p and p[: len(q)] == q), default=0) for p in owned
        )

    def pairs(self) -> int:
        return sum(len(node.owners) for node in self.nodes.values())

    def _common(self, a: Any, b: Any) -> int:
        return common(a, b) // self.page * self.page
