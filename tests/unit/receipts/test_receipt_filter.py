"""cpp/receipts/receipt_filter.h: what a query may say, and what a wrong one is told."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


@for_each_row(
    ("name", "value", "message"),
    [
        (
            "last",
            "0",
            'last is "0"; it is the number of receipts and must be a whole number between 1 and 1000',
        ),
        ("last", "1001", 'last is "1001"; it is the number'),
        ("last", "ten", 'last is "ten"; it is the number'),
        ("last", "", 'last is ""; it is the number'),
        ("reason", "prefix_hitt", r'reason is "prefix_hitt"; .*\(did you mean prefix_hit\?\)'),
        ("arm", "control", 'arm is "control"; it must be policy or holdout'),
        ("min_miss_tokens", "-1", 'min_miss_tokens is "-1"; it must be a whole number, 0 or more'),
        ("since", "yesterday", 'since is "yesterday"; it must be a time such as'),
        ("since", "2026-13-01T00:00:00Z", 'since is "2026-13-01T00:00:00Z"; it must be a time such as'),
        ("since", "nan", 'since is "nan"; it must be a time such as'),
        ("since", "2026-01-31T12:00:00", 'since is "2026-01-31T12:00:00"; it must be a time such as'),
        ("modle", "m", r'receipts have no parameter "modle"; there are last, .*\(did you mean model\?\)'),
    ],
)
def test_a_wrong_parameter_is_told_what_is_possible(name, value, message):
    with pytest.raises(ValueError, match=message):
        testing.ReceiptLog(1, 4).find([(name, value)])


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)))
def test_a_time_is_written_as_it_is_read(moment):
    unix_us = int(
        moment.replace(tzinfo=UTC, microsecond=moment.microsecond // 1000 * 1000).timestamp() * 1000
    )
    unix_us *= 1000
    text = testing.time_text(unix_us)
    assert (
        text
        == datetime.fromtimestamp(unix_us // 1_000_000, UTC)
        .strftime("%Y-%m-%dT%H:%M:%S.")
        .replace(f"{moment.year}-", f"{moment.year:04}-", 1)
        + f"{unix_us // 1000 % 1000:03}Z"
    )
    assert testing.parse_time(text) == unix_us


def test_seconds_since_1970_are_a_time():
    assert testing.parse_time("1764000000.5") == 1_764_000_000_500_000
    assert testing.parse_time("0") == 0
    assert testing.parse_time("2025-11-24T16:00:00Z") == 1_764_000_000_000_000
    assert testing.parse_time("-1") is None
