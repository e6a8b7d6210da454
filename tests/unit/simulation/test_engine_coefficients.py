"""cpp/simulation/engine_coefficients.h."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing
from vllm_router._core import replay

NAMES = (
    "step_ms",
    "prefill_us_per_token",
    "attention_ns_per_token2",
    "decode_us_per_sequence",
    "context_ns_per_token",
)


def test_the_first_preset_is_the_default_and_has_the_figures_of_its_table():
    assert next(iter(replay.presets)) == "h200_32b"
    assert testing.engine_preset("h200_32b") == [12, 80, 3.5, 50, 73]


def test_every_preset_says_what_it_is_and_can_be_used():
    for name, preset in replay.presets.items():
        assert preset["what"]
        values = testing.engine_preset(name)
        assert values == [preset[coefficient] for coefficient in NAMES]
        testing.check_engine_coefficients(values)


def test_an_unknown_preset_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match='"h2oo" is unknown; presets: h200_32b, '):
        testing.engine_preset("h2oo")


@for_each_row("place", range(5))
@for_each_row("value", [-1, float("nan"), float("inf")])
def test_a_coefficient_out_of_range_is_named(place, value):
    values = [1.0] * 5
    values[place] = value
    with pytest.raises(ValueError, match=f"{NAMES[place]} is .*; it must be from 0 to "):
        testing.check_engine_coefficients(values)
