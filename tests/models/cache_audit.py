"""The slow twin of cpp/events/cache_audit.h, in seconds: it keeps every check and looks back over all."""

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Check:
    at: int
    share: Fraction | None  # of the cache; None: unknown
    gaps: int

    def within(self, least: str) -> bool:
        return self.share is not None and Fraction(least) <= self.share <= Fraction("1.02")


@dataclass
class CacheAudit:
    checks: list[Check] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)

    def check(self, known: int, usable: int, gaps: int, now: int) -> bool:
        self.checks.append(Check(now, Fraction(known, usable) if usable else None, gaps))
        if not self.is_over() or (self.drops and now - self.drops[-1] < self.pause()):
            return False
        self.drops.append(now)
        return True

    def pause(self) -> int:
        """After the last drop: doubled for each in a row of those less than ten minutes apart."""
        row = 1
        while row < len(self.drops) and self.drops[-row] - self.drops[-row - 1] < 600:
            row += 1
        return min(10 * 2 ** (row - 1), 300)

    def is_over(self) -> bool:
        last = self.checks[-1].share if self.checks else None
        return last is not None and last > Fraction("1.02")

    def is_settled(self, gaps: int) -> bool:
        """Full for 60 s once, and never too empty since then."""
        stretch = []
        for check in reversed(self.checks):
            if check.gaps != gaps or not check.within("0.9"):
                break
            stretch.insert(0, check)
        for i, first in enumerate(stretch):
            for last in stretch[i:]:
                if not last.within("0.98"):
                    break
                if last.at - first.at >= 60:
                    return True
        return False

    def judge(self, trust: str, gaps: int) -> str:
        if trust in ("exact", "settled") and self.is_over():
            return "partial"
        return "settled" if trust == "partial" and self.is_settled(gaps) else trust
