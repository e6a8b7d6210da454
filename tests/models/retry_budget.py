"""The slow twin of cpp/routing/retry_budget.h: one count per second of the clock for all threads."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class RetryBudget:
    """The last ten seconds of the clock, this one included, are what counts."""

    share: float
    requests: Counter[int] = field(default_factory=Counter)
    retries: Counter[int] = field(default_factory=Counter)

    def count_request(self, now: float) -> None:
        self.requests[int(now)] += 1

    def take(self, now: float) -> bool:
        seconds = range(int(now) - 9, int(now) + 1)
        requests = sum(self.requests[second] for second in seconds)
        retries = sum(self.retries[second] for second in seconds)
        if retries >= 10 * 10 + self.share * requests:
            return False
        self.retries[int(now)] += 1
        return True
