"""Idle connections in the order in which they became idle; the twin of cpp/proxy/thread/idle_list.h."""

from __future__ import annotations


class IdleList:
    def __init__(self, max_looks: int) -> None:
        self.max_looks = max_looks
        self.order: list[int] = []
        self.claims = 0

    def enter(self, number: int) -> None:
        self.order.append(number)

    def leave(self, number: int) -> None:
        self.order = [other for other in self.order if other != number]

    def find(self, busy: set[int]) -> int | None:
        candidates = [number for number in self.order[: self.max_looks] if number not in busy]
        return candidates[0] if candidates else None

    def claim(self) -> bool:
        granted = self.claims < len(self.order)
        self.claims += granted
        return granted

    def end_claim(self) -> None:
        self.claims -= 1
