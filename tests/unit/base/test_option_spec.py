"""cpp/base/option_spec.h, on a table that has a row of each kind (bindings/testing_base.cc)."""

import re

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

DEFAULTS = {
    "width": 90,
    "play": 1.25,
    "delay_secs": 0.5,
    "port": None,
    "hinge": 0,
    "glass": False,
    "color": "red",
    "signs": [],
    "lock_share": 0.5,
}


def test_a_default_is_the_member_s_initializer():
    assert testing.door({}) == DEFAULTS


@for_each_row(
    ("name", "value", "kept"),
    [
        ("width", 60, 60),
        ("play", 2.0006, 2.001),
        ("play", 0.0, 0.0),
        ("delay_secs", 0.0001, 0.001),
        ("port", 65_535, 65_535),
        ("hinge", "right", 1),
        ("glass", True, True),
        ("color", "blue", "blue"),
        ("signs", ["pull"], ["pull"]),
        ("lock_share", 0.25, 0.25),
        ("width", None, 90),
    ],
)
def test_an_option_is_set_by_name(name, value, kept):
    assert testing.door({name: value}) == {**DEFAULTS, name: kept}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("width", 59, "width is 59; it is the width in cm and must be between 60 and 120 (default 90)"),
        (
            "play",
            0.5,
            "play is 0.5; it is the room around it and must be at least 1, or 0 to have none (default 1.25)",
        ),
        ("hinge", "rigth", 'hinge is "rigth"; it must be one of left, right (did you mean right?)'),
        ("hinge", "top", 'hinge is "top", which needs a flap; use left'),
    ],
)
def test_a_value_out_of_range_is_answered_with_the_range_and_the_default(name, value, message):
    with pytest.raises(ValueError, match=f": {re.escape(message)}$"):
        testing.door({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("width", 256),
        ("width", "wide"),
        ("port", 65_536),
        ("play", -0.5),
        ("play", 4_294_968.0),
        ("delay_secs", 1e300),
        ("delay_secs", float("nan")),
        ("glass", 1.5),
        ("signs", "pull"),
    ],
)
def test_a_value_that_the_member_cannot_hold_is_refused(name, value):
    with pytest.raises(ValueError, match=f"OUT_OF_RANGE: {name} is not of its type or range"):
        testing.door({name: value})
