"""The slow twin of the leases of cpp/routing/rate_limit.h, and of the bucket that they come from
(cpp/proxy/client/peer_streams.cc). Times are whole nanoseconds and microseconds."""

from __future__ import annotations

SECOND = 10**9


class Leases:
    """One router's part of a limit: tokens at hand, and one more that the next lease pays for."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.leases = False
        self.tokens = 0
        self.wanted = 0
        self.lately: list[int] = []
        self.again = 0
        self.routers = 1
        self.due = 0

    def take(self, now: int) -> int:
        if self.leases:
            self.wanted += 1
            if self.tokens < 0:
                return max(1, self.again)
            self.tokens -= 1
            return 0
        share = max(1, self.rate // self.routers)
        interval = -(-SECOND // share)
        start = max(self.due, now)
        if start + interval > now + share * interval:
            return start + interval - now - share * interval
        self.due = start + interval
        return 0

    def settle(self, routers: int) -> int:
        self.lately = [*self.lately[-7:], self.wanted]
        self.wanted = 0
        most = max(self.lately)
        least = self.rate // 2 // routers
        aim = max(least, min(most + -(-most // 5), self.rate))
        asked = aim - self.tokens
        self.tokens = min(self.tokens, aim)
        return asked

    def lease(self, tokens: int, again: int) -> None:
        self.leases = True
        self.tokens += max(0, tokens)
        self.again = again

    def share_out(self, routers: int, now: int) -> None:
        self.routers = routers
        if self.leases:
            self.leases = False
            self.tokens = 0
            self.due = now + SECOND


class Bucket:
    """Half a second's worth, and at least one token. Microseconds, exact."""

    def __init__(self, due: int | None = None) -> None:
        self.due = due

    def lease(self, now: int, rate: int, tokens: int) -> int:
        interval = 1_000_000 / rate
        burst = max(500_000, interval)
        full = now - burst
        due = full if self.due is None else max(self.due, full)
        if due > now + burst:
            due = now
        got = min(tokens, max(0, int((now - due) // interval)))
        self.due = round(max(due + got * interval, full))
        return got
