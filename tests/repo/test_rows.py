"""tests/rows.py: all rows run, and a failure names those that failed."""

import inspect

import pytest

from tests.rows import for_each_row


def test_every_row_runs_with_its_values():
    seen = []

    @for_each_row("a", [1, 2])
    @for_each_row(("b", "c"), [("x", 0), pytest.param("y", 5, id="five")])
    def test(a, b, c, fixture):
        seen.append((a, b, c, fixture))

    test(fixture=None)
    assert seen == [(a, *row, None) for a in (1, 2) for row in (("x", 0), ("y", 5))]
    assert list(inspect.signature(test).parameters) == ["fixture"]


def test_a_failure_is_the_first_rows_and_names_all_that_failed():
    @for_each_row("number", [1, 2, 3, 4], ids=["one", "two", "three", "four"])
    def test(number):
        assert number % 2 == 0, f"{number} is odd"

    with pytest.raises(AssertionError, match="1 is odd") as caught:
        test()
    assert caught.value.__notes__ == ["2 of 4 rows of 'number' failed:\n  one\n  three"]


def test_of_many_that_failed_the_first_are_named():
    @for_each_row("number", range(12))
    def test(number):
        raise ValueError(number)

    with pytest.raises(ValueError, match="0") as caught:
        test()
    (note,) = caught.value.__notes__
    assert note.endswith("  9 (9,)\n  and 2 more")


def test_rows_that_one_test_cannot_have_are_refused():
    with pytest.raises(ValueError, match="a has no row"):
        for_each_row("a", [])
    with pytest.raises(TypeError, match="row 1 has marks"):
        for_each_row("a", [1, pytest.param(2, marks=pytest.mark.xfail)])
