"""Permits and the line of those who wait for them, as a list; the twin of cpp/routing/concurrency_limiter.h.

And requests per second as a bucket of tokens; the twin of cpp/routing/rate_limit.h.
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 10**9


@dataclass(eq=False)
class Waiter:  # compared by identity
    amount: int
    place: tuple[int, int] | None = None  # lower ones are served first


class ConcurrencyLimiter:
    def __init__(self, permits: int, line: int) -> None:
        self.permits, self.most = permits, line
        self.line: list[Waiter] = []
        self.in_use = 0
        self.places = 0
        self.granted: list[Waiter] = []

    @property
    def full(self) -> bool:
        return (bool(self.line) or self.in_use >= self.permits) and len(self.line) >= self.most

    def enter(self, waiter: Waiter) -> str:
        if waiter.amount > self.permits:
            return "never"
        if not self.line and self.in_use + waiter.amount <= self.permits:
            self.in_use += waiter.amount
            return "held"
        if len(self.line) >= self.most:
            return "full"
        self._stand(waiter, 1)
        return "waiting"

    def release(self, amount: int) -> None:
        self.in_use -= amount
        self._pass(amount)

    def leave(self, waiter: Waiter) -> bool:
        if waiter not in self.line:
            return False
        self.line.remove(waiter)
        self._pass(waiter.amount)
        return True

    def step_back(self, waiter: Waiter) -> str:
        self.in_use -= waiter.amount
        if waiter.place is None and len(self.line) >= self.most:
            self._pass(waiter.amount)
            return "full"
        self._stand(waiter, 0)  # who passed without a line came before all who stand in it
        return "waiting"

    def nudge(self) -> None:
        self._pass(1)

    def wake(self, waiter: Waiter) -> None:
        if waiter in self.line and self.in_use + waiter.amount <= self.permits:
            self.line.remove(waiter)
            self.in_use += waiter.amount
            self.granted.append(waiter)

    def set_limits(self, permits: int, line: int) -> None:
        self.permits, self.most = permits, line
        self._pass(len(self.line))

    def _stand(self, waiter: Waiter, rank: int) -> None:
        if waiter.place is None:
            self.places += 1
            waiter.place = (rank, self.places)
        self.line.append(waiter)
        self.line.sort(key=lambda one: one.place or (0, 0))

    def _pass(self, most: int) -> None:
        while self.line and most and self.in_use + self.line[0].amount <= self.permits:
            most -= 1
            waiter = self.line.pop(0)
            self.in_use += waiter.amount
            self.granted.append(waiter)


class RateLimit:
    """A bucket with one second's worth of tokens; a token takes whole nanoseconds to come, rounded up."""

    def __init__(self, per_second: int) -> None:
        self.token = -(-SECOND // per_second)
        self.most = self.token * per_second
        self.filled, self.now = self.most, 0  # in nanoseconds' worth of tokens

    def take(self, now: int) -> int:
        self.filled = min(self.most, self.filled + now - self.now)
        self.now = now
        if self.filled < self.token:
            return self.token - self.filled
        self.filled -= self.token
        return 0
