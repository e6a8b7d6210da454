"""The slow twin of cpp/peer_sync/admin_facts.h: a list of all that was said, searched each time."""

from collections.abc import Collection
from typing import Any

KEPT_MS = 86_400_000
MAX_FACTS = 4096
MEMBER, DRAIN = 0, 1
Fact = tuple[int, bool, bool, int, int, int, int, bytes]


class AdminFacts:
    def __init__(self) -> None:
        self._facts: list[Fact] = []

    def merge(self, fact: Fact) -> bool:
        same = [one for one in self._facts if self._key(one) == self._key(fact)]
        if not same and len(self._facts) >= MAX_FACTS:
            return False
        if same and not self._is_later(fact, same[0]):
            return False
        self._facts = [one for one in self._facts if one not in same] + [fact]
        return True

    def counts(self, fact: Fact) -> bool:
        kind, holds, url = fact[0], fact[1], fact[7]
        ended = [
            one
            for one in self._facts
            if holds and one[0] != kind and one[7] == url and one[1] and self._is_later(one, fact)
        ]
        return fact in self._facts and not ended

    def forget(self, now_ms: int, known: Collection[bytes]) -> None:
        self._facts = [one for one in self._facts if not self._is_over(one, now_ms, known)]

    def all(self) -> list[Fact]:
        return sorted(self._facts, key=self._key)

    def _is_over(self, fact: Fact, now_ms: int, known: Collection[bytes]) -> bool:
        kind, holds, url = fact[0], fact[1], fact[7]
        drains = [one for one in self._facts if one[0] == DRAIN and one[1] and one[7] == url]
        if not holds:
            return fact[5] + KEPT_MS < now_ms
        if kind == MEMBER:
            drains = [one for one in drains if self._is_later(one, fact)]
        return url not in known and any(one[5] + KEPT_MS < now_ms for one in drains)

    @staticmethod
    def _is_later(one: Fact, other: Fact) -> bool:
        return (one[5], one[6]) > (other[5], other[6])

    @staticmethod
    def _key(fact: Fact) -> Any:
        return (fact[0], fact[7])
