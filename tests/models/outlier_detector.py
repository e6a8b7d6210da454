"""The slow twin of cpp/worker/outlier_detector.h, told in seconds."""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

BUCKETS = 8


@dataclass
class ResponseCounts:
    """Every response by the bucket of the clock that it came in; the last eight buckets are the window."""

    window_secs: float
    successes: Counter[int] = field(default_factory=Counter)
    errors: Counter[int] = field(default_factory=Counter)

    def _bucket(self, now: float) -> int:
        return int(now / (self.window_secs / BUCKETS))

    def success(self, now: float) -> None:
        self.successes[self._bucket(now)] += 1

    def error(self, now: float) -> None:
        self.errors[self._bucket(now)] += 1

    def turn_into_error(self, now: float) -> None:
        """What was counted as a success before, perhaps in an earlier bucket."""
        self.error(now)
        self.successes[self._bucket(now)] -= 1

    def within(self, now: float) -> tuple[int, int]:
        """Errors, and all responses."""
        last = self._bucket(now)
        window = range(last - BUCKETS + 1, last + 1)
        errors = sum(self.errors[bucket] for bucket in window)
        return errors, errors + max(0, sum(self.successes[bucket] for bucket in window))


def is_outlier(own: tuple[int, int], others: tuple[int, int]) -> bool:
    share = Fraction(own[0], own[1]) if own[1] else 0
    share_of_others = Fraction(others[0], others[1]) if others[1] else 0
    return share > Fraction(1, 2) and share > 2 * share_of_others


def may_eject(in_rotation: int, ejected: int) -> bool:
    """With one more, at most half of those that are healthy and not draining are ejected, or a single one."""
    return ejected + 1 <= max(1, in_rotation / 2)
