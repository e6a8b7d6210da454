"""The slow twin of cpp/routing/retry_plan.h: whether and when a request is tried again, told in seconds."""

from dataclasses import dataclass

from tests.models.random import Random

RETRYABLE = {408, 429, 500, 502, 503, 504}


@dataclass
class Options:
    max_tries: int = 5
    lost_retries: int = 1
    initial_backoff_ms: int = 50
    max_backoff_ms: int = 30_000
    backoff_multiplier: float = 1.5
    jitter_factor: float = 0.2
    disabled: bool = False


@dataclass
class Failed:
    how: str = "lost"  # connect, broken, lost, bad_answer, send_timeout, first_byte_timeout, status, drained
    status: int = 0
    retry_after_ms: int | None = None
    untried_left: bool = False
    since_first_sent: float = 0.0


@dataclass
class RetryPlan:
    options: Options
    repeatable: bool
    failures: int = 0
    exhausted: bool = False
    retry_lost: bool = True
    lost: int = 0

    def next(self, failed: Failed, dice: Random) -> float | None:
        """Seconds to wait before the next try, or None."""
        self.failures += 1
        worker_may_have_begun = failed.how != "connect"
        if worker_may_have_begun and not self.repeatable:
            return None
        if failed.how == "status" and failed.status not in RETRYABLE:
            return None
        if failed.how == "first_byte_timeout" and failed.since_first_sent > 30:
            return None
        if self.options.disabled:
            return None
        if self.failures >= self.options.max_tries:
            self.exhausted = self.options.max_tries > 1
            return None
        if failed.how in ("lost", "bad_answer"):
            self.lost += 1
            if self.lost > (self.options.lost_retries if self.retry_lost else 0):
                return None
        if failed.untried_left and failed.how != "status" and self.failures == 1:
            return 0.0
        pause = self._backoff(dice)
        if failed.untried_left or failed.retry_after_ms is None:
            return pause
        if failed.retry_after_ms > 2_000:
            return None
        return max(pause, failed.retry_after_ms / 1000)

    def _backoff(self, dice: Random) -> float:
        grown = self.options.initial_backoff_ms * self.options.backoff_multiplier ** (self.failures - 1)
        draw = dice.below(2**32) / 2**32
        jitter = 1 + self.options.jitter_factor * (2 * draw - 1)
        return min(grown, self.options.max_backoff_ms) * jitter / 1000
