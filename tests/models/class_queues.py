"""The slow twin of cpp/admission/class_queues.h: a list per class. Tenants have equal weights."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.models.fair_queue import IN_FRONT, FairQueue
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
class Queue:
    """The waiters of a class, the oldest first."""

    fair: FairQueue = field(default_factory=lambda: FairQueue(UNBOUNDED, QUANTUM))
    waiters: list[Waiter] = field(default_factory=list)
    time: float = 0.0

    aged_last: bool = False  # the last one that went as one of this class was of the class below

    def backlog(self, tenant: int) -> int:
        return sum(waiter.tenant == tenant for waiter in self.waiters)


class ClassQueues:
    """Classes are numbers here: 0 is the highest."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.queues = [Queue() for _ in CLASSES]
        self.taken: dict[int, Waiter] = {}
        self.arrivals = IN_FRONT
        self.virtual_time = 0.0

    @property
    def sizes(self) -> list[int]:
        return [len(queue.waiters) for queue in self.queues]

    @property
    def waiting(self) -> list[Waiter]:
        return [waiter for queue in self.queues for waiter in queue.waiters]

    def enqueue(self, waiter: Waiter, now_ms: int) -> tuple[bool, int | None]:
        size = self.settings.sizes[waiter.of_class]
        queue = self.queues[waiter.of_class]
        if size == 0:
            return False, None
        displaced = None
        if len(queue.waiters) >= size:
            displaced = self._displaced(waiter)
            if displaced is None:
                return False, None
            self.remove(displaced.number)
        if not queue.waiters:
            queue.time = max(queue.time, self.virtual_time)
        self.arrivals += 1
        waiter.arrival, waiter.queued_ms = self.arrivals, now_ms
        queue.waiters.append(waiter)
        queue.fair.enqueue(Fair(waiter.number, waiter.tenant, waiter.cost))
        return True, displaced.number if displaced else None

    def enqueue_in_front(self, waiter: Waiter, now_ms: int) -> None:
        queue = self.queues[waiter.of_class]
        if not queue.waiters:
            queue.time = max(queue.time, self.virtual_time)
        waiter.arrival, waiter.queued_ms = IN_FRONT, now_ms
        queue.waiters.append(waiter)
        queue.waiters.sort(key=lambda other: other.arrival)
        queue.fair.enqueue_in_front(Fair(waiter.number, waiter.tenant, waiter.cost))

    def _displaced(self, newcomer: Waiter) -> Waiter | None:
        for lower in range(len(CLASSES) - 1, newcomer.of_class, -1):
            waiters = self.queues[lower].waiters
            if waiters and waiters[-1].arrival != IN_FRONT:
                return waiters[-1]
        queue = self.queues[newcomer.of_class]
        tenants = {waiter.tenant for waiter in queue.waiters}
        if not tenants:
            return None
        longest = max(tenants, key=lambda tenant: (queue.backlog(tenant), tenant))
        if longest == newcomer.tenant or queue.backlog(longest) < queue.backlog(newcomer.tenant) + 2:
            return None
        newest = [waiter for waiter in queue.waiters if waiter.tenant == longest][-1]
        return None if newest.arrival == IN_FRONT else newest

    def next(self, room: list[bool], now_ms: int) -> tuple[int, str] | None:
        order = range(len(CLASSES))
        weights = self.settings.weights
        if weights:
            order = sorted(order, key=lambda place: self.queues[place].time)
        for place in order:
            queue = self.queues[place]
            ages = not weights and room[place] and self._ages(place, now_ms)
            if ages and not queue.aged_last:
                queue.aged_last = True
                return self._first(self.queues[place + 1]).number, "aged"
            if not room[place] or not queue.waiters:
                continue
            waiter = self._first(queue)
            queue.aged_last = False
            if weights:
                self.virtual_time = max(self.virtual_time, queue.time)
                queue.time += waiter.cost / weights[place]
            return waiter.number, "queued"
        return None

    def passed(self, of_class: int) -> None:
        self.queues[of_class].aged_last = False

    def _ages(self, upper: int, now_ms: int) -> bool:
        if upper + 1 >= len(CLASSES) or not self.queues[upper + 1].waiters:
            return False
        waiter, age_ms = self.queues[upper + 1].waiters[0], self.settings.ages_ms[upper + 1]
        if age_ms == 0 or now_ms - waiter.queued_ms < age_ms:
            return False
        others = self.queues[upper].waiters
        return not others or waiter.queued_ms < others[0].queued_ms

    def _first(self, queue: Queue) -> Waiter:
        fair = queue.fair.next([7])
        waiter = next(waiter for waiter in queue.waiters if waiter.number == fair.number)
        queue.waiters.remove(waiter)
        self.taken[waiter.number] = waiter
        return waiter

    def requeue(self, number: int) -> None:
        waiter = self.taken.pop(number)
        queue = self.queues[waiter.of_class]
        queue.fair.requeue(number)
        if self.settings.weights:
            queue.time -= waiter.cost / self.settings.weights[waiter.of_class]
        queue.waiters.append(waiter)
        queue.waiters.sort(key=lambda other: other.arrival)

    def remove(self, number: int) -> bool:
        for queue in self.queues:
            for waiter in queue.waiters:
                if waiter.number == number:
                    queue.waiters.remove(waiter)
                    queue.fair.remove(number)
                    return True
        return False

    def settle(self, number: int, actual: int) -> None:
        waiter = self.taken.pop(number)
        queue = self.queues[waiter.of_class]
        queue.fair.settle(number, actual)
        if self.settings.weights:
            queue.time += (actual - waiter.cost) / self.settings.weights[waiter.of_class]

    def queued_cost(self, of_class: int) -> int:
        return sum(
            waiter.cost for waiter in self.waiting if waiter.of_class <= of_class or self.settings.weights
        )
