"""Is a sample what it should be? Bounds so wide that chance alone breaks them once in a million runs."""

import math
from collections.abc import Sequence


def chi_square_is_plausible(counts: Sequence[int], weights: Sequence[float]) -> bool:
    """Whether counts fit the weights, at the level 1e-6 (Wilson and Hilferty's approximation)."""
    total, weight = sum(counts), sum(weights)
    expected = [total * w / weight for w in weights]
    statistic = sum((count - e) ** 2 / e for count, e in zip(counts, expected, strict=True))
    degrees = len(counts) - 1
    return statistic < degrees * (1 - 2 / (9 * degrees) + 4.7534 * math.sqrt(2 / (9 * degrees))) ** 3
