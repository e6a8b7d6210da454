"""Rows of one test, for rows that are many and share nothing.

pytest.mark.parametrize makes a test of each, whose set-up and report cost more than the row.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

MOST_NAMED = 10
PARAM: Any = type(pytest.param())


def for_each_row(
    names: str | Sequence[str],
    rows: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[object] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Takes what pytest.mark.parametrize takes, and runs the test for all rows. A failure names the rows that
    failed, and is the first one's.

    Raises:
        TypeError: a row has marks, which one test cannot have for some of its rows.
        ValueError: there is no row.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    single = isinstance(names, str) and len(arguments) == 1
    cases: list[tuple[str, tuple[Any, ...]]] = []
    given = None if ids is None or callable(ids) else list(ids)
    for number, row in enumerate(rows):
        if not isinstance(row, PARAM):
            row = PARAM((row,) if single else tuple(row), (), None)
        values, marks, name = row
        if marks:
            raise TypeError(f"row {number} has marks; give them to the test, or use pytest.mark.parametrize")
        if name is None and given is not None:
            name = given[number]
        elif name is None and callable(ids):
            name = "-".join(str(ids(value)) for value in values)
        cases.append((str(name) if name is not None else f"{number} {values!r:.80}", values))
    if not cases:
        raise ValueError(f"{names} has no row; a test without rows cannot fail")

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed: list[str] = []
            first: BaseException | None = None
            for name, values in cases:
                try:
                    test(**fixtures, **dict(zip(arguments, values, strict=True)))
                except Exception as error:
                    failed.append(name)
                    first = first or error
            if first is not None:
                more = len(failed) - MOST_NAMED
                first.add_note(
                    f"{len(failed)} of {len(cases)} rows of {names!r} failed:\n  "
                    + "\n  ".join(failed[:MOST_NAMED])
                    + (f"\n  and {more} more" if more > 0 else "")
                )
                raise first

        signature = inspect.signature(test)
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[one for one in signature.parameters.values() if one.name not in arguments]
        )
        del run.__wrapped__  # pytest would take the names of the rows for fixtures
        return run

    return decorate
