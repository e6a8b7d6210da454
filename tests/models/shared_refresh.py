"""When a shared value is refreshed, from all that happened;
the twin of cpp/proxy/control/shared_refresh.h.
"""

from __future__ import annotations


class SharedRefresh:
    def __init__(self, fresh: int, usable: int) -> None:
        self.fresh, self.usable = fresh, usable
        self.values: list[tuple[int, int]] = []  # when they were there, and for which version they were made
        self.running: int | None = None  # the version that is being made
        self.begun = 0

    def ask(self, now: int, version: int) -> str:
        if self._has_younger(now, self.fresh) and self.values[-1][1] == version:
            return "serve"
        if self.running is not None:
            return "join"
        self.running, self.begun = version, now
        return "start"

    def is_usable(self, now: int) -> bool:
        return self._has_younger(now, self.usable)

    def end(self, now: int) -> None:
        assert self.running is not None
        self.values.append((now, self.running))
        self.running = None

    def _has_younger(self, now: int, age: int) -> bool:
        return bool(self.values) and now - self.values[-1][0] < age
