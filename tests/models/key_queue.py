"""Which keys are validated next, as plain lists; the twin of cpp/proxy/security/key_queue.h."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Validation:
    key: str
    refresh: bool
    running: bool = False
    waiters: list[tuple[int, str]] = field(default_factory=list)  # (number, address)


class KeyQueue:
    def __init__(self, places: int, address_share: int) -> None:
        self.places, self.address_share = places, address_share
        self.validations: list[Validation] = []  # in order of their first waiter, for those that wait or run
        self.queues: dict[str, list[str]] = {}  # keys by address; the order of addresses is that of turns

    @property
    def waiting(self) -> int:
        return sum(len(validation.waiters) for validation in self.validations)

    def waiting_of(self, address: str) -> int:
        return sum(
            where == address
            for validation in self.validations
            if not validation.refresh
            for _, where in validation.waiters
        )

    @property
    def queued(self) -> int:
        return sum(not validation.running for validation in self.validations)

    def find(self, key: str) -> Validation | None:
        return next((one for one in self.validations if one.key == key), None)

    def enter(self, number: int, address: str, key: str, refresh: bool) -> str:
        known = self.find(key)
        validation = known or Validation(key, refresh)
        if self.waiting >= self.places:
            return "full"
        if not validation.refresh and self.waiting_of(address) >= self.address_share:
            return "address_full"
        if known is None:
            self.validations.append(validation)
        validation.waiters.append((number, address))
        if not validation.running and not validation.refresh:
            queue = self.queues.setdefault(address, [])
            if key not in queue:
                queue.append(key)
        return "new" if known is None else "joined"

    def begin(self) -> str | None:
        refreshes = [one for one in self.validations if one.refresh and not one.running]
        if refreshes:
            refreshes[0].running = True
            return refreshes[0].key
        if not self.queues:
            return None
        address = next(iter(self.queues))
        key = self.queues[address][0]
        self.queues[address] = self.queues.pop(address)  # its next turn is the last
        self._unqueue(key)
        validation = self.find(key)
        assert validation is not None
        validation.running = True
        return key

    def end(self, key: str) -> list[int]:
        validation = self.find(key)
        assert validation is not None
        self.validations.remove(validation)
        return [number for number, _ in validation.waiters]

    def leave(self, number: int) -> bool:
        """Whether a running validation is to be abandoned."""
        for validation in self.validations:
            for waiter in validation.waiters:
                if waiter[0] == number:
                    validation.waiters.remove(waiter)
                    if not any(address == waiter[1] for _, address in validation.waiters):
                        self._unqueue(validation.key, waiter[1])
                    if not validation.waiters:
                        self.validations.remove(validation)
                        return validation.running
                    return False
        return False

    def _unqueue(self, key: str, only: str | None = None) -> None:
        for address in list(self.queues):
            if only in (None, address) and key in self.queues[address]:
                self.queues[address].remove(key)
                if not self.queues[address]:
                    del self.queues[address]
