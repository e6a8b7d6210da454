"""cpp/admission/program_settings.h: the line, its limits, and the TTL that is worked out."""

import pytest

from vllm_router import _core_testing as testing


def test_what_a_line_leaves_out_has_its_default():
    row = testing.program_settings("on")
    assert (row["mode"], row["fill"], row["max_wait_ms"], row["reject_after_ms"]) == (2, 0.9, 300_000, 0)
    row = testing.program_settings("observe fill=0.5 max_wait_ms=10 capacity=320000 max_active_per_tenant=4")
    assert (row["mode"], row["fill"], row["max_wait_ms"]) == (1, 0.5, 10)
    assert (row["capacity"], row["max_active_per_tenant"]) == (320_000, 4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", 'the mode is ""; it must be off, observe or on'),
        ("maybe", 'the mode is "maybe"; it must be off, observe or on'),
        ("on fill=1.1", 'fill is "1.1"; it must be a number above 0, up to 0.95'),
        ("on fill=nan", 'fill is "nan"; it must be a number above 0, up to 0.95'),
        ("on max_wait_ms=0", 'max_wait_ms is "0"; it must be a whole number between 1 and 86400000'),
        ("on capacity=many", 'capacity is "many"; it must be a whole number between 0 and'),
        ("on fill", '"fill" has no value; write NAME=VALUE'),
        ("on patience=1", '"patience" is not a known member of programs'),
    ],
)
def test_a_mistake_is_named(line, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        testing.program_settings(line)
    assert message in str(error.value)


def test_the_ttl_is_what_computing_the_whole_cache_takes():
    seconds = 1_000_000_000
    assert testing.program_ttl_ns("on", 320_000, 12_000) == pytest.approx(320 / 12 * seconds, rel=0.001)
    assert testing.program_ttl_ns("on", 320_000, 100_000) == 10 * seconds
    assert testing.program_ttl_ns("on", 320_000, 1_000) == 120 * seconds
    assert testing.program_ttl_ns("on max_ttl_ms=5000", 320_000, 1_000) == 5 * seconds
    assert testing.program_ttl_ns("on", 0, 0) == 60 * seconds
    assert testing.program_ttl_ns("on ttl_ms=300000", 320_000, 12_000) == 300 * seconds
