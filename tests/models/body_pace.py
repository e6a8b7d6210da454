"""A client's pace as a list of what came when; the twin of cpp/proxy/exchange/body_pace.h."""

from __future__ import annotations

STEPS = 30
SECOND = 10**9


class BodyPace:
    def __init__(self, rate: int, window_ms: int) -> None:
        self.rate_limit = rate
        self.step = window_ms * 10**6 // STEPS
        self.now = 0  # nanoseconds of waiting
        self.arrivals: list[tuple[int, int]] = []  # (the step in which they came, bytes)
        self.too_slow = False

    def arrived(self, count: int) -> None:
        self.arrivals.append((self.now // self.step, count))

    def waited(self, nanos: int) -> None:
        if self.rate_limit == 0 or self.too_slow:
            return
        before, self.now = self.now // self.step, self.now + nanos
        ended = range(before // STEPS, self.now // self.step // STEPS)
        self.too_slow = any(self._brought(w * STEPS, STEPS) < self._least(STEPS) for w in ended)

    @property
    def rate(self) -> str:
        if self.too_slow:
            return "too_slow"
        step = self.now // self.step
        if self.rate_limit == 0 or step == 0 or self._was_enough(step) or self._was_enough(step - 1):
            return "moving"
        return "slow"

    def _was_enough(self, step: int) -> bool:
        return self._brought(step, 1) >= self._least(1) * 2 ** min(step // 5, 24)

    def _brought(self, first: int, count: int) -> int:
        return sum(size for step, size in self.arrivals if first <= step < first + count)

    def _least(self, steps: int) -> int:
        return self.rate_limit * self.step * steps // SECOND
