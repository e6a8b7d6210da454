"""How a rule over all files fails: with what to do, and every place, which pytest would cut short."""

from collections.abc import Iterable


def none_of(found: Iterable[object], remedy: str) -> None:
    assert not (places := sorted(map(str, found))), "\n  ".join([remedy, *places])
