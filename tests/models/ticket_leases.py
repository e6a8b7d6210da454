"""The slow twin of cpp/routing/ticket_leases.h: when each ticket is due, by number."""

from __future__ import annotations


class TicketLeases:
    def __init__(self) -> None:
        self.due: dict[int, int] = {}
        self.open: set[int] = set()
        self.expired = 0

    def next_due(self) -> int | None:
        return min(self.due.values(), default=None)

    def expire(self, now: int) -> int:
        late = {number for number, due in self.due.items() if due <= now}
        self.due = {number: due for number, due in self.due.items() if number not in late}
        ended = len(late & self.open)
        self.open -= late
        self.expired += ended
        return ended
