"""The slow twin of cpp/admission/evictables.h: a list that is sorted for each eviction."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_TOKENS = 8000
MOST_EVICTIONS = 2
PAUSE_MS = 1000
FAST_PACE = 30_000.0
RANKS = {"interactive": 0, "default": 1, "batch": 2}


@dataclass
class Request:
    """One that waits at a worker for its first token."""

    number: int
    worker: int
    of_class: str
    tokens: int
    chosen_ms: int
    evictions: int

    def left(self, pace: float, now_ms: int) -> int:
        seconds = max(0, now_ms - self.chosen_ms) / 1000
        return int(max(0.0, self.tokens - (pace or FAST_PACE) * seconds))


class Evictables:
    """`classes`: of those that may be evicted."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.evicted_ms: dict[int, int] = {}

    def add(self, request: Request) -> None:
        self.requests.append(request)

    def remove(self, number: int) -> None:
        self.requests = [request for request in self.requests if request.number != number]

    def evict_at(self, worker: int, now_ms: int, pace: float, classes: list[str]) -> int | None:
        found = [
            request
            for request in self.requests
            if request.worker == worker
            and request.of_class in classes
            and request.evictions < MOST_EVICTIONS
            and request.left(pace, now_ms) > LEAST_TOKENS
        ]
        if not found or now_ms - self.evicted_ms.get(worker, -PAUSE_MS) < PAUSE_MS:
            return None

        def order(request: Request) -> tuple[int, int, int, int, int]:
            left = request.left(pace, now_ms)
            return (
                RANKS[request.of_class],
                -request.evictions,
                left,
                request.chosen_ms,
                request.number,
            )

        chosen = max(found, key=order)
        self.remove(chosen.number)
        self.evicted_ms[worker] = now_ms
        return chosen.number
