"""The slow twin of the worker room: who belongs to the fleet and who of them may serve.

URLs are of the form http://host:port or http://host:port@rank, spelled one way; other spellings are
the subject of tests/unit/worker/test_worker_url.py.
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass
class Worker:
    """One member. Weight in thousandths; loads as docs/reference/policies.md counts them."""

    url: str
    id: int
    weight: int = 1000
    healthy: bool = True
    draining: bool = False
    requests: int = 0
    waiting: int = 0
    prefill: int = 0
    output: int = 0
    context: int = 0
    polled: int = 0  # of other routers, of which only a poll of the worker tells
    polled_waiting: int = 0

    @property
    def base(self) -> str:
        return self.url.partition("@")[0]

    @property
    def tokens(self) -> int:
        return self.prefill + self.output


class Fleet:
    """Members in order of registration."""

    def __init__(self) -> None:
        self.members: list[Worker] = []
        self.next_id = 0
        self.membership = 0

    def add(self, url: str, weight: int = 1000) -> bool:
        if any(worker.url == url for worker in self.members):
            return False
        host_is_up = all(worker.healthy for worker in self.members if worker.base == url.partition("@")[0])
        self.members.append(Worker(url, self.next_id, weight, healthy=host_is_up))
        self.next_id += 1
        self.membership += 1
        return True

    def find(self, url: str) -> list[Worker]:
        """The worker of this URL; without a rank also all ranks of it."""
        return [worker for worker in self.members if url == worker.url or url == worker.base]

    def remove(self, url: str) -> bool:
        gone = self.find(url)
        self.members = [worker for worker in self.members if worker not in gone]
        self.membership += bool(gone)
        return bool(gone)

    def set_draining(self, url: str, draining: bool) -> bool:
        for worker in self.find(url):
            worker.draining = draining
        return bool(self.find(url))

    def set_healthy(self, url: str, healthy: bool) -> bool:
        found = self.find(url)
        for worker in self.members:
            if found and worker.base == found[0].base:
                worker.healthy = healthy
        return bool(found)

    def eligible(self, tried: Collection[int] = ()) -> list[int]:
        """Positions of those who may be chosen, ascending."""
        return [
            position
            for position, worker in enumerate(self.members)
            if worker.healthy and not worker.draining and position not in tried
        ]
