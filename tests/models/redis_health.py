"""The slow twin of cpp/redis/redis_health.h, told in seconds: it keeps everything that was reported."""

from __future__ import annotations

DELAYS = (1, 2, 4, 8, 16)  # then 30


class RedisHealth:
    def __init__(self, failures: int = 2) -> None:
        self.failures = failures
        self.story: list[tuple[str, float]] = [("connecting", 0.0)]  # states and since when
        self.in_a_row = 0
        self.rung = 0  # of the ladder of delays, for the next time that it goes down
        self.next_probe = 0.0

    @property
    def state(self) -> str:
        return self.story[-1][0]

    def _down(self, now: float) -> None:
        self.story.append(("down", now))
        self.next_probe = now + (DELAYS[self.rung] if self.rung < len(DELAYS) else 30)
        self.rung += 1

    def opened(self, now: float) -> None:
        if self.state == "connecting":
            self._up(now)

    def _up(self, now: float) -> None:
        self.story.append(("up", now))
        self.in_a_row = 0

    def worked(self) -> None:
        self.in_a_row = 0

    def failed(self, now: float) -> None:
        if self.state == "connecting":
            self._down(now)
        elif self.state == "up":
            self.in_a_row += 1
            if self.in_a_row == self.failures:
                if now - self.story[-1][1] >= 60:
                    self.rung = 0
                self._down(now)

    def begin_probe(self, now: float) -> bool:
        due = self.state == "down" and now >= self.next_probe
        if due:
            self.story.append(("probing", now))
        return due

    def end_probe(self, worked: bool, now: float) -> None:
        if self.state == "probing":
            if worked:
                self._up(now)
            else:
                self._down(now)
