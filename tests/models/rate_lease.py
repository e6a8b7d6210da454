"""The slow twin of the leases of cpp/routing/rate_limit.h, and of the bucket that they come from
(cpp/proxy/peer_sync/peer_streams.cc). Times are whole nanoseconds and microseconds.

`simulate` runs routers, a bucket and requests with time passed in.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any

SECOND = 10**9


class Leases:
    """One router's part of a limit: tokens at hand, and one more that the next lease pays for."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.leases = False
        self.tokens = 0
        self.wanted = 0
        self.lately: list[int] = []
        self.asked = 0
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
        interval, ahead = self._pace()
        start = max(self.due, now)
        if start > now + ahead:
            return start - now - ahead
        self.due = start + interval
        return 0

    def settle(self, routers: int) -> int:
        self.lately = [*self.lately[-19:], self.wanted]
        self.wanted = 0
        most = max(self.lately)
        least = self.rate // 2 // routers
        aim = max(least, min(most + -(-most // 5), self.rate))
        self.asked = aim - self.tokens
        self.tokens = min(self.tokens, aim)
        return self.asked

    def lease(self, tokens: int, again: int) -> None:
        self.leases = True
        self.tokens += max(0, min(tokens, self.asked))
        self.asked = 0
        self.again = again

    def share_out(self, routers: int, now: int, phase: float) -> None:
        self.routers = routers
        if self.leases:
            self.leases = False
            self.tokens = self.asked = 0
            interval, ahead = self._pace()
            self.due = now + ahead + int(interval * phase)

    def _pace(self) -> tuple[int, int]:
        """Between two requests, and how far those may be ahead that come at once."""
        interval = -(-SECOND * self.routers // self.rate)
        return interval, interval * (max(1, self.rate // self.routers) - 1)


class Bucket:
    """Half a second's worth, and at least one token and what comes in a quarter of a second; and the routers
    that want more than they got. Microseconds, exact.
    """

    SHARE = 300_000  # in this time a router that waits gets an equal part of all that is left
    FORGET = 1_000_000

    def __init__(self, due: int | None = None) -> None:
        self.due = due
        self.queue: list[tuple[str, int]] = []  # routers, and until when they have had their parts

    def lease(self, now: int, rate: int, tokens: int, router: str = "") -> int:
        interval = 1_000_000 / rate
        burst = max(500_000, interval + 250_000)
        full = now - burst
        due = full if self.due is None else max(self.due, full)
        if due > now + burst:
            due = now
        left = max(0, int((now - due) // interval))
        waiting = [(name, paid) for name, paid in self.queue if now - self.FORGET < paid <= now]
        queue = [entry for entry in waiting if entry[0] != router]
        # One that did not wait comes last, and has a whole part to take.
        place, since = len(queue), self.SHARE
        for at, (name, paid) in enumerate(waiting):
            if name == router:
                place, since = at, min(self.SHARE, now - paid)
        got = tokens
        if tokens > 0:
            part = left * since / self.SHARE / (len(queue) + 1)
            got = min(tokens, int(part))
            if part >= 1:
                since *= 1 - got / part
            elif left <= len(queue) and place < left:
                got, since = 1, 0
        self.due = round(max(due + got * interval, full))
        if got < tokens:
            queue.insert(len(queue) if got > 0 else place, (router, round(now - since)))
        self.queue = queue
        return got


class Arrivals:
    """Requests at a rate, evenly spaced or at random."""

    def __init__(self, per_second: float, draw: random.Random | None = None, phase: float = 0.0) -> None:
        self.step = SECOND / per_second if per_second else 0.0
        self.draw = draw
        self.next = self.step * phase

    def until(self, now: int) -> int:
        count = 0
        while self.step and self.next <= now:
            count += 1
            self.next += self.draw.expovariate(1) * self.step if self.draw else self.step
        return count


def simulate(
    make: Callable[[int], Any],
    rate: int,
    loads: Sequence[float],
    seconds: float,
    *,
    seed: int = 1,
    turn_ns: int = 100_000_000,
    jitter: float = 0.25,
    warm: float = 0.0,
    locked: bool = False,
    reply_ns: int = 1_000_000,
) -> list[int]:
    """How many requests each router admits, of `loads` a second, after `warm` seconds.

    `make(rate)` makes a router's limit. Turns come in any order; with `locked` all begin at once.
    """
    draw = random.Random(seed)
    bucket = Bucket()
    count = len(loads)
    limits = [make(rate) for _ in loads]
    flows = [Arrivals(load, random.Random(seed * 1000 + at)) for at, load in enumerate(loads)]
    admitted = [0] * count
    base = 10**15  # microseconds, of the bucket
    first = [0 if locked else draw.randrange(turn_ns) for _ in loads]
    events = [(first[at], at, False, 0) for at in range(count)]
    heapq.heapify(events)
    end = int((warm + seconds) * SECOND)
    while events[0][0] < end:
        now, at, replies, got = heapq.heappop(events)
        limit = limits[at]
        for _ in range(flows[at].until(now)):
            admitted[at] += limit.take(now) == 0 and now >= warm * SECOND
        if replies:
            limit.lease(got, turn_ns)
            turn = int(turn_ns * (1 + jitter * (2 * draw.random() - 1)))
            heapq.heappush(events, (now + turn, at, False, 0))
        else:
            got = bucket.lease(base + now // 1000, rate, limit.settle(count), f"{at:016x}")
            heapq.heappush(events, (now + reply_ns, at, True, got))
    return admitted
