"""The conditional bypass of prefill (cpp/routing/pd_bypass.h), as slowly as it can be said.

A worker is a tuple: weight, open requests, queued tokens, expected output, tokens of the prompt to compute.
"""

import math
from fractions import Fraction

Row = tuple[float, int, int, int, int]


def has_room(rows: list[Row], row: Row) -> bool:
    """Fewer requests than 1.25 times its share of all of them and this one."""
    share = Fraction(row[0]) / sum(Fraction(other[0]) for other in rows)
    return row[1] < math.ceil(Fraction(5, 4) * (sum(other[1] for other in rows) + 1) * share)


def may_be_chosen(rows: list[Row], uncached_tokens: int, queued_tokens: int) -> list[int]:
    """The positions of which one is chosen at random; none: two stages."""
    roomy = [position for position, row in enumerate(rows) if has_room(rows, row)]
    if not uncached_tokens or not roomy:
        return []
    least = min(rows[position][4] for position in roomy)
    equals = [position for position in roomy if rows[position][4] == least]

    def load(position: int) -> tuple[Fraction, Fraction]:
        weight, requests, queued, expected, _ = rows[position]
        return Fraction(queued + expected) / Fraction(weight), Fraction(requests) / Fraction(weight)

    lightest = min(load(position) for position in equals)
    chosen = [position for position in equals if load(position) == lightest]
    fits = [position for position in chosen if rows[position][2] + least <= queued_tokens]
    return fits if least <= uncached_tokens else []
