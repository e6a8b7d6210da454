"""The slow twin of cpp/index/hash_ring.h: a dictionary from point to owner, walked in order."""

from collections.abc import Collection, Sequence
from fractions import Fraction
from math import ceil

from tests.models.hashing import ring_hash


class HashRing:
    """Owner k of (name, points) pair k has the points of "<name>:0" .. "<name>:<points - 1>"."""

    def __init__(self, names_and_points: Sequence[tuple[str, int]], function: str = "furc") -> None:
        owner_of: dict[int, int] = {}
        for owner, (name, points) in enumerate(names_and_points):
            for i in range(points):
                owner_of[ring_hash(function, f"{name}:{i}".encode())] = owner
        self.points = sorted(owner_of.items())
        self.replaced = sum(points for _, points in names_and_points) - len(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def find_point(self, point: int) -> int | None:
        """Index of the first point at or after `point`, wrapping."""
        if not self.points:
            return None
        return next((i for i, (other, _) in enumerate(self.points) if other >= point), 0)

    def find_owner(self, point: int, accepted: Collection[int]) -> int | None:
        """The first owner at or after `point`, clockwise, that is accepted."""
        start = self.find_point(point)
        if start is None:
            return None
        clockwise = self.points[start:] + self.points[:start]
        return next((owner for _, owner in clockwise if owner in accepted), None)


def bounded_owner(
    names_and_points: Sequence[tuple[str, int]],
    function: str,
    key: str | int,
    loads: Sequence[int],
    weights: Sequence[float],
    epsilon_thousandths: int,
    eligible: Collection[int] | None = None,
) -> int | None:
    """The first eligible owner clockwise whose load is below ceil((1 + e) (total + 1) w / sum of weights)."""
    ring = HashRing(names_and_points, function)
    point = key if isinstance(key, int) else ring_hash(function, key.encode())
    eligible = range(len(loads)) if eligible is None else eligible
    thousandths = [round(weight * 1000) for weight in weights]
    total, weight = sum(loads[i] for i in eligible), sum(thousandths[i] for i in eligible)
    factor = Fraction(1000 + epsilon_thousandths, 1000)
    below = {i for i in eligible if loads[i] < ceil(factor * (total + 1) * Fraction(thousandths[i], weight))}
    return ring.find_owner(point, below)
