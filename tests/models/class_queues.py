"""The slow twin of cpp/admission/class_queues.h: a list per class. Tenants have equal weights."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.models.fair_queue import FairQueue
from tests.models.fair_queue import Waiter as Fair

CLASSES = ("interactive", "default", "batch")
UNBOUNDED = 10**9
QUANTUM = 4000.0


@dataclass
class Settings:
    """Of each class, the highest first; `weights`: of the weighted order, or None."""

    sizes: tuple[int, int, int] = (256, 512, 8192)
    ages_ms: tuple[int, int, int] = (0, 30_000, 0)
    weights: tuple[float, float, float] | None = None

    def lines(self) -> str:
        """As the core reads them."""
        rows = []
        for place, name in enumerate(CLASSES):
            row = f"class {name} queue_size={self.sizes[place]} age_after_ms={self.ages_ms[place]}"
            rows.append(row + (f" weight={self.weights[place]}" if self.weights else ""))
        return "\n".join(rows)


@dataclass
class Waiter:
    """One that waits, or was dispatched and is not settled."""

    number: int
    of_class: int
    tenant: int
    cost: int
    queued_ms: int = 0
    arrival: int = 0


@dataclass
class Line:
    """The waiters of a class, the oldest first."""

    fair: FairQueue = field(default_factory=lambda: FairQueue(UNBOUNDED, QUANTUM))
    waiters: list[Waiter] = field(default_factory=list)
    time: float = 0.0

    def backlog(self, tenant: int) -> int:
        return sum(waiter.tenant == tenant for waiter in self.waiters)


class ClassQueues:
    """Classes are numbers here: 0 is the highest."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lines = [Line() for _ in CLASSES]
        self.taken: dict[int, Waiter] = {}
        self.arrivals = 0
        self.virtual_time = 0.0

    @property
    def sizes(self) -> list[int]:
        return [len(line.waiters) for line in self.lines]

    @property
    def waiting(self) -> list[Waiter]:
        return [waiter for line in self.lines for waiter in line.waiters]

    def enqueue(self, waiter: Waiter, now_ms: int) -> tuple[bool, int | None]:
        size = self.settings.sizes[waiter.of_class]
        line = self.lines[waiter.of_class]
        if size == 0:
            return False, None
        displaced = None
        if len(line.waiters) >= size:
            displaced = self._displaced(waiter)
            if displaced is None:
                return False, None
            self.remove(displaced.number)
        if not line.waiters:
            line.time = max(line.time, self.virtual_time)
        self.arrivals += 1
        waiter.arrival, waiter.queued_ms = self.arrivals, now_ms
        line.waiters.append(waiter)
        line.fair.enqueue(Fair(waiter.number, waiter.tenant, waiter.cost))
        return True, displaced.number if displaced else None

    def _displaced(self, newcomer: Waiter) -> Waiter | None:
        for lower in range(len(CLASSES) - 1, newcomer.of_class, -1):
            if self.lines[lower].waiters:
                return self.lines[lower].waiters[-1]
        line = self.lines[newcomer.of_class]
        tenants = {waiter.tenant for waiter in line.waiters}
        if not tenants:
            return None
        longest = max(tenants, key=lambda tenant: (line.backlog(tenant), tenant))
        if longest == newcomer.tenant or line.backlog(longest) < line.backlog(newcomer.tenant) + 2:
            return None
        return [waiter for waiter in line.waiters if waiter.tenant == longest][-1]

    def next(self, room: list[bool], now_ms: int) -> tuple[int, str] | None:
        order = range(len(CLASSES))
        weights = self.settings.weights
        if weights:
            order = sorted(order, key=lambda place: self.lines[place].time)
        for place in order:
            line = self.lines[place]
            aged = None if weights else self._aged(place, now_ms)
            if aged is not None and room[place]:
                self._take(aged)
                return aged.number, "aged"
            if not room[place] or not line.waiters:
                continue
            fair = line.fair.next([7])
            waiter = next(waiter for waiter in line.waiters if waiter.number == fair.number)
            line.waiters.remove(waiter)
            self.taken[waiter.number] = waiter
            if weights:
                self.virtual_time = max(self.virtual_time, line.time)
                line.time += waiter.cost / weights[place]
            return waiter.number, "queued"
        return None

    def _aged(self, upper: int, now_ms: int) -> Waiter | None:
        if upper + 1 >= len(CLASSES) or not self.lines[upper + 1].waiters:
            return None
        waiter, age_ms = self.lines[upper + 1].waiters[0], self.settings.ages_ms[upper + 1]
        if age_ms == 0 or now_ms - waiter.queued_ms < age_ms:
            return None
        others = self.lines[upper].waiters
        return waiter if not others or waiter.queued_ms < others[0].queued_ms else None

    def _take(self, waiter: Waiter) -> None:
        line = self.lines[waiter.of_class]
        line.waiters.remove(waiter)
        line.fair.take(waiter.number)
        self.taken[waiter.number] = waiter

    def requeue(self, number: int) -> None:
        waiter = self.taken.pop(number)
        line = self.lines[waiter.of_class]
        line.fair.requeue(number)
        if self.settings.weights:
            line.time -= waiter.cost / self.settings.weights[waiter.of_class]
        line.waiters.append(waiter)
        line.waiters.sort(key=lambda other: other.arrival)

    def remove(self, number: int) -> bool:
        for line in self.lines:
            for waiter in line.waiters:
                if waiter.number == number:
                    line.waiters.remove(waiter)
                    line.fair.remove(number)
                    return True
        return False

    def settle(self, number: int, actual: int) -> None:
        waiter = self.taken.pop(number)
        line = self.lines[waiter.of_class]
        line.fair.settle(number, actual)
        if self.settings.weights:
            line.time += (actual - waiter.cost) / self.settings.weights[waiter.of_class]

    def queued_cost(self, of_class: int) -> int:
        return sum(
            waiter.cost for waiter in self.waiting if waiter.of_class <= of_class or self.settings.weights
        )
