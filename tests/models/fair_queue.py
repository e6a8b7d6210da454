"""The slow twin of cpp/admission/fair_queue.h: lists that are sorted for each choice."""

from __future__ import annotations

from dataclasses import dataclass, field

TENANTS_SEARCHED = 8
WAITERS_SEARCHED = 16
SAME_SHARE = 0.05
IN_FRONT = 1  # an order before all others


@dataclass
class Waiter:
    """`order` is 0 until it is queued; `holders` are pairs of a worker and a share of the prompt."""

    number: int
    tenant: int
    cost: int
    weight: float = 1.0
    holders: list[tuple[int, float]] = field(default_factory=list)
    worker: int | None = None
    order: int = 0

    def share_at(self, workers: list[int]) -> float | None:
        """None: none of the workers can take it."""
        if self.worker is not None:
            workers = [self.worker] if self.worker in workers else []
            if not workers:
                return None
        return max((share for worker, share in self.holders if worker in workers), default=0.0)


@dataclass
class Tenant:
    """Its virtual time, and its waiters from the oldest on."""

    time: float
    joined: int = 0
    waiters: list[Waiter] = field(default_factory=list)


class FairQueue:
    """All costs in tokens; virtual times are tokens over weights."""

    def __init__(self, max_waiters: int, quantum: float) -> None:
        self.max_waiters = max_waiters
        self.quantum = quantum
        self.virtual_time = 0.0
        self.tenants: dict[int, Tenant] = {}
        self.orders = IN_FRONT
        self.taken: dict[int, Waiter] = {}

    def __len__(self) -> int:
        return sum(len(tenant.waiters) for tenant in self.tenants.values())

    @property
    def reserved(self) -> int:
        return sum(waiter.cost for waiter in self.taken.values())

    @property
    def floor(self) -> float:
        return self.virtual_time - self.quantum

    def backlogged(self) -> list[Tenant]:
        """Those with waiters, the first in front."""
        found = [tenant for tenant in self.tenants.values() if tenant.waiters]
        return sorted(found, key=lambda tenant: (tenant.time, tenant.joined))

    def enqueue(self, waiter: Waiter) -> bool:
        if len(self) >= self.max_waiters:
            return False
        self.orders += 1
        waiter.order = self.orders
        self._put(waiter)
        return True

    def enqueue_in_front(self, waiter: Waiter) -> None:
        waiter.order = IN_FRONT
        self._put(waiter)

    def next(self, workers: list[int]) -> Waiter | None:
        queue = self.backlogged()
        if not queue or not workers:
            return None
        self.virtual_time = max(self.virtual_time, queue[0].time)
        candidates: list[tuple[Tenant, Waiter, float]] = []
        for tenant in queue[:TENANTS_SEARCHED]:
            if candidates and tenant.time > queue[0].time + self.quantum:
                break
            for waiter in tenant.waiters[:WAITERS_SEARCHED]:
                share = waiter.share_at(workers)
                if share is not None:
                    candidates.append((tenant, waiter, share))
        chosen = None
        if candidates:
            largest = max(share for _, _, share in candidates)
            tenant, chosen, _ = next(found for found in candidates if found[2] > largest - SAME_SHARE)
            tenant.waiters.remove(chosen)
            tenant.time += chosen.cost / chosen.weight
            self.taken[chosen.number] = chosen
        self._forget()
        return chosen

    def requeue(self, number: int) -> None:
        waiter = self.taken[number]
        self.settle(number, 0)
        self._put(waiter)

    def remove(self, number: int) -> bool:
        for tenant in self.tenants.values():
            for waiter in tenant.waiters:
                if waiter.number == number:
                    tenant.waiters.remove(waiter)
                    self._forget()
                    return True
        return False

    def settle(self, number: int, actual: int) -> None:
        waiter = self.taken.pop(number)
        more = (actual - waiter.cost) / waiter.weight
        if more <= 0 and waiter.tenant not in self.tenants:
            return
        self._tenant(waiter.tenant).time += more
        self._forget()

    def _tenant(self, name: int) -> Tenant:
        return self.tenants.setdefault(name, Tenant(self.floor, joined=self.orders))

    def _put(self, waiter: Waiter) -> None:
        tenant = self._tenant(waiter.tenant)
        if not tenant.waiters:
            tenant.time = max(tenant.time, self.floor)
            tenant.joined = waiter.order
        tenant.waiters.append(waiter)
        tenant.waiters.sort(key=lambda other: other.order)
        self._forget()

    def _forget(self) -> None:
        while idle := [name for name, tenant in self.tenants.items() if not tenant.waiters]:
            first = min(idle, key=lambda name: (self.tenants[name].time, self.tenants[name].joined))
            if self.tenants[first].time > self.floor and len(self.tenants) <= 2 * self.max_waiters:
                return
            del self.tenants[first]
