"""The part of lookups of the last five minutes that found something, from a list of all of them."""

STEP_NS = 10_000_000_000
STEPS = 30


class HitRate:
    def __init__(self) -> None:
        self._lookups: list[tuple[int, bool]] = []

    def count(self, hit: bool, now_ns: int) -> None:
        self._lookups.append((now_ns // STEP_NS, hit))

    def of(self, now_ns: int) -> float:
        recent = [hit for step, hit in self._lookups if step > now_ns // STEP_NS - STEPS]
        return sum(recent) / len(recent) if recent else 0.0
