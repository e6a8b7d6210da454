"""The slow twin of cpp/peer_sync/admin_facts.h: a list of all that was said, searched each time."""

from typing import Any

KEPT_MS = 86_400_000
MAX_FACTS = 4096
Fact = tuple[int, bool, bool, int, int, int, int, bytes]


class AdminFacts:
    def __init__(self) -> None:
        self._facts: list[Fact] = []

    def merge(self, fact: Fact) -> bool:
        same = [one for one in self._facts if self._key(one) == self._key(fact)]
        if not same and len(self._facts) >= MAX_FACTS:
            return False
        if same and (fact[5], fact[6]) <= (same[0][5], same[0][6]):
            return False
        self._facts = [one for one in self._facts if one not in same] + [fact]
        return True

    def forget(self, now_ms: int) -> None:
        self._facts = [one for one in self._facts if one[1] or one[5] + KEPT_MS >= now_ms]

    def all(self) -> list[Fact]:
        return sorted(self._facts, key=self._key)

    @staticmethod
    def _key(fact: Fact) -> Any:
        return (fact[0], fact[7])
