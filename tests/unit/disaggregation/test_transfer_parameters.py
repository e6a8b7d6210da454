"""cpp/disaggregation/transfer_parameters.h: looks at an object of a prefill worker's response."""

import pytest

from tests.rows import for_each_row
from vllm_router._core_testing import transfer_count_in, transfer_has, transfer_text_in


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'"e"', "e"),
        (rb'"\u00e9\n"', "\u00e9\n"),
        (b'"12345"', "12345"),
        (b'"123456"', None),
        (b'""', None),
        (b"null", None),
        (b"7", None),
        (rb'"\ud800"', None),
        (rb'"\x"', None),
    ],
)
def test_a_text_is_unescaped_and_bounded(value, text):
    assert transfer_text_in(b'{"a":' + value + b"}", "a", 5) == text


@for_each_row(
    ("value", "count"),
    [
        (b"1", 1),
        (b"8", 8),
        (b"9", None),
        (b"0", None),
        (b"-1", None),
        (b"01", None),
        (b"1.0", None),
        (b"1e0", None),
        (b'"1"', None),
        (b"true", None),
        (b"18446744073709551617", None),
    ],
)
def test_a_count_is_a_whole_number_from_1(value, count):
    assert transfer_count_in(b'{"a":' + value + b"}", "a", 8) == count


@pytest.mark.parametrize("what", ["once", "text", "port", "blocks"])
def test_a_member_counts_only_once(what):
    value = {"port": b"5600", "blocks": b"[[1]]"}.get(what, b'"x"')
    assert transfer_has(what, b'{"a":' + value + b"}", "a")
    assert not transfer_has(what, b'{"a":' + value + b',"a":' + value + b"}", "a")
    assert not transfer_has(what, b'{"a":' + value + rb',"\u0061":null}', "a")
    assert not transfer_has(what, b'{"b":' + value + b"}", "a")


@pytest.mark.parametrize("blocks", [b"[]", b"[[],[]]", b'["1"]', b"[null,1]", b"{}", b"1", b"[[1,-1]]"])
def test_blocks_are_lists_of_numbers(blocks):
    assert not transfer_has("blocks", b'{"a":' + blocks + b"}", "a")
    assert transfer_has("blocks", b'{"a":[ [1, 22],\n[3] ]}', "a")


@pytest.mark.parametrize("port", [b"0", b"65536", b'"5600"', b"null"])
def test_a_port_is_1_to_65535(port):
    assert not transfer_has("port", b'{"a":' + port + b"}", "a")
    assert transfer_has("port", b'{"a":65535}', "a")
