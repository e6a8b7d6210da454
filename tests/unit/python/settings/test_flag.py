"""vllm_router.settings.flag: what a flag says of itself, and of a value that does not fit."""

import pytest

from vllm_router._version import __version__
from vllm_router.settings.flag import Flag, NotBuilt, plain_help
from vllm_router.settings.kinds import Number, Switch

POINTS = Flag(Number(1, 9), "the number of points", "", 3, "Odd is fine.", aliases=("dots",), field="points")
TRACE = Flag(Switch(), "trace requests", "", False, not_built=NotBuilt("tracing", "nothing"), field="trace")


def test_a_flag_has_its_own_spelling_first() -> None:
    assert POINTS.spellings == ["points", "dots"]


def test_the_help_says_what_it_is_how_else_it_is_spelled_and_its_default() -> None:
    assert plain_help(POINTS) == "The number of points. Odd is fine. Also --dots. Default: 3."


def test_a_value_that_does_not_fit_is_named_with_the_limit_and_the_default() -> None:
    limit = "a whole number between 1 and 9 (default 3)"
    with pytest.raises(ValueError) as misfit:  # noqa: PT011, the whole sentence is compared
        POINTS.check(10)
    assert str(misfit.value) == f"points is 10; it is the number of points and must be {limit}"


def test_a_function_that_is_not_built_is_refused_away_from_its_default() -> None:
    TRACE.check_built(False)
    refusal = f"--trace is not implemented in vllm-router {__version__} yet \\(tracing\\): nothing; remove it"
    with pytest.raises(ValueError, match=refusal):
        TRACE.check_built(True)
