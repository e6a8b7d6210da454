"""The slow twin of cpp/worker/circuit_breaker.h, told in seconds."""

from dataclasses import dataclass, field


@dataclass
class Options:
    failure_threshold: int = 10
    success_threshold: int = 3
    open_secs: float = 60.0
    window_secs: float = 120.0
    disabled: bool = False


@dataclass(eq=False)
class Pass:
    epoch: int
    probe: bool
    settled: bool = False


@dataclass
class CircuitBreaker:
    options: Options
    state: str = "closed"
    epoch: int = 0
    failures: list[float] = field(default_factory=list)
    broken_off: list[float] = field(default_factory=list)
    successes: int = 0
    opened: float = 0.0
    prober: Pass | None = None
    held_since: float | None = None  # of the prober
    out_of_reach: bool = False

    def _move(self, state: str, now: float) -> tuple[str, str]:
        before, self.state = self.state, state
        self.epoch += 1
        self.failures, self.broken_off, self.successes = [], [], 0
        self.prober = self.held_since = None
        if state == "open":
            self.opened = now
        return before, state

    def come_due(self, now: float) -> tuple[str, str] | None:
        if self.state == "open" and now - self.opened >= self.options.open_secs:
            return self._move("half_open", now)
        if self.held_since is not None and now - self.held_since >= self.options.open_secs:
            self.prober = self.held_since = None
            self.epoch += 1
        return None

    def not_reached(self) -> None:
        self.out_of_reach = True

    def reached(self) -> tuple[str, str] | None:
        was, self.out_of_reach = self.out_of_reach, False
        return self._move("half_open", self.opened) if was and self.state == "open" else None

    def try_pass(self) -> Pass | None:
        if self.state == "closed":
            return Pass(self.epoch, probe=False)
        if self.state == "open" or self.prober is not None:
            return None
        self.prober = Pass(self.epoch, probe=True)
        return self.prober

    def pass_in_panic(self) -> Pass:
        return Pass(self.epoch, probe=False)

    def hold(self, ticket: Pass, now: float) -> None:
        if self.prober is ticket:
            self.held_since = now

    def give_up(self, ticket: Pass) -> None:
        if self.prober is ticket:
            self.prober = self.held_since = None

    def held_closed(self) -> bool:
        rows = max(len(self.failures), len(self.broken_off))
        return self.state == "closed" and rows >= self.options.failure_threshold

    def settle(self, ticket: Pass, verdict: str, now: float, may_open: bool = True) -> tuple[str, str] | None:
        if verdict == "success":
            self.out_of_reach = False
        self.give_up(ticket)
        if verdict == "neutral" or ticket.epoch != self.epoch:
            return None
        if verdict == "failure":
            return self._fail(self.failures, now, may_open)
        if self.state == "open":  # it served in panic mode
            return self._move("half_open", now)
        if self.state == "half_open":
            self.successes += 1
            return self._move("closed", now) if self.successes >= self.options.success_threshold else None
        self.failures = []
        return None

    def settle_end(
        self, ticket: Pass, broke_off: bool, now: float, may_open: bool = True
    ) -> tuple[str, str] | None:
        if ticket.epoch != self.epoch:
            return None
        if not broke_off:
            self.broken_off = []
            return None
        return self._fail(self.broken_off, now, may_open)

    def _fail(self, row: list[float], now: float, may_open: bool) -> tuple[str, str] | None:
        if self.state == "half_open":
            return self._move("open", now)
        if self.state == "open":
            self.opened = now
            return None
        if self.options.disabled:
            return None
        row.append(now)
        row[:] = [time for time in row if now - time <= self.options.window_secs]
        row[:] = row[-self.options.failure_threshold :]
        full = len(row) >= self.options.failure_threshold
        return self._move("open", now) if full and may_open else None
