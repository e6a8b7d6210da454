"""The slow twins of cpp/admission/tenant_limits.h and tenant_table.h: drained buckets, and a list of tenants.

Times are exact nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MINUTE = 60 * 10**9
MOST_DEBT = 3600 * 10**9
MOST_PEER_DEBT = 60 * 10**9
LOOKS = 64


class RateBucket:
    """`used`: how long what was taken lasted at `at`, at the pace of the last take, `pace`."""

    def __init__(self, per_minute: int, burst: int) -> None:
        self.per_minute = per_minute
        self.burst = burst
        self.parts = 1
        self.pace = 0
        self.used = 0
        self.due = 0  # when nothing was left of what was taken, which may be past
        self.at = 0

    def nanos_of(self, amount: int, pace: int = 0) -> int:
        return -(-amount * MINUTE * self.parts // (pace or self.per_minute))

    @property
    def capacity(self) -> int:
        return max(self.burst, self.nanos_of(1))

    @property
    def used_now(self) -> int:
        """How long the same amount lasts at the pace of now."""
        if self.pace in (0, self.per_minute):
            return self.used
        most = max(self.used, self.capacity + MOST_DEBT)
        return min(self.used * self.pace // self.per_minute, most)

    def amount_in(self, nanos: int) -> int:
        return nanos * self.per_minute // (MINUTE * self.parts)

    def drain(self, now: int) -> None:
        self.used = max(0, self.used - (now - self.at))
        self.at = now

    def follow(self, now: int) -> None:
        """What is left counts at the pace of now."""
        self.drain(now)
        if self.used > 0:
            self.used = self.used_now
            self.due = now + self.used
        self.pace = self.per_minute

    def take(self, amount: int, now: int) -> int | None:
        """0: taken. None: more than the burst. Else how long to wait."""
        self.follow(now)
        nanos = self.nanos_of(amount)
        whole = -(-MINUTE // self.per_minute)
        if nanos > self.capacity and -(-amount * MINUTE // self.per_minute) > max(self.burst, whole):
            return None
        needed = min(nanos, self.capacity)
        if self.used + needed > self.capacity:
            return self.used + needed - self.capacity
        self.used += nanos
        self.due = now + self.used
        return 0

    def charge(self, amount: int, age: int, now: int) -> None:
        """Another router took it so long ago."""
        self.follow(now)
        until = max(self.due, now - age) + self.nanos_of(amount)
        self.due = max(self.due, min(until, now + self.capacity + MOST_PEER_DEBT))
        self.used = max(0, self.due - now)

    def settle(self, taken: int, actual: int, now: int) -> None:
        self.drain(now)
        more = self.nanos_of(actual, self.pace) - self.nanos_of(taken, self.pace)
        if more > 0:
            capacity = max(self.burst, self.nanos_of(1, self.pace))
            self.used = max(self.used, min(self.used + more, capacity + MOST_DEBT))
            self.due = now + self.used
        elif self.used > 0 and more < 0:
            self.due = now + self.used + more
            self.used = max(0, self.used + more)

    def level(self, now: int) -> tuple[int, int, int]:
        """Limit, remaining, and the time until it is full."""
        self.drain(now)
        left = max(0, self.capacity - self.used_now)
        return self.amount_in(self.capacity), self.amount_in(left), self.used_now


@dataclass
class Entry:
    """One tenant's: how many hold it, and its bucket of one token per second."""

    name: str
    holds: int = 0
    tokens: RateBucket = field(default_factory=lambda: RateBucket(60, MINUTE))


class TenantTable:
    """Of fewer than 1,024 tenants, which have one shard."""

    def __init__(self, max_tenants: int) -> None:
        self.max_tenants = max_tenants
        self.entries: list[Entry] = []
        self.hand = 0
        self.shared_finds = 0

    def find(self, tenant: str, now: int) -> Entry | None:
        """None: it shares one. Who finds an entry holds it."""
        for entry in self.entries:
            if entry.name == tenant:
                entry.holds += 1
                return entry
        entry = self._free(now)
        if entry is None:
            self.shared_finds += 1
            return None
        entry.name = tenant
        entry.holds = 1
        return entry

    def _free(self, now: int) -> Entry | None:
        if len(self.entries) < self.max_tenants:
            self.entries.append(Entry(""))
            return self.entries[-1]
        for _ in range(min(LOOKS, len(self.entries))):
            entry = self.entries[self.hand]
            self.hand = (self.hand + 1) % len(self.entries)
            entry.tokens.drain(now)
            if entry.holds == 0 and entry.tokens.used == 0:
                return entry
        return None
