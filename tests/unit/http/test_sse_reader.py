"""cpp/http/sse_reader.h: events of a text/event-stream, whole or in pieces of every size."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def read(text, size=None, **options):
    data = text.encode()
    pieces = [data] if size is None else [data[at : at + size] for at in range(0, len(data), size)]
    return testing.read_sse(pieces, **options)


def events(text, **options):
    return read(text, **options)[0]


STREAM = (
    ": welcome\nevent: created\ndata: {\ndata:  1}\n\n"
    "data\n\n"  # an empty line of data
    "event: lost\n\n"  # no data: no event, and its type is not the next one's
    "id: 7\nretry: 2000\nunknown: x\ndata: two\n\n"
    "data: unfinished"
)
EVENTS = [(b"created", b"{\n 1}"), (b"", b""), (b"", b"two")]


@for_each_row("end", ["\n", "\r\n", "\r"])
@for_each_row("size", [None, *range(1, 30)])
def test_a_stream_has_the_same_events_in_all_pieces_and_with_all_line_ends(end, size):
    assert read(STREAM.replace("\n", end), size) == (EVENTS, "7", 2000)


@for_each_row("end", ["\n", "\r\n", "\r"])
@for_each_row("length", [1, 57, 58, 59, 63, 64, 65, 121, 122, 123, 500])
def test_lines_of_all_lengths_end_where_they_end(end, length):
    """Also at and across the blocks in which ends are searched for."""
    text = f"data: {'x' * length}{end}data: {'y' * length}{end}{end}data: z{end}{end}"
    both = b"x" * length + b"\n" + b"y" * length
    assert events(text) == [(b"", both), (b"", b"z")]


def test_line_ends_may_be_mixed_and_a_byte_order_mark_is_none_of_the_data():
    assert events("\ufeffdata: a\r\n\ndata: b\r\r\ndata: c\n\r") == [(b"", b"a"), (b"", b"b"), (b"", b"c")]
    assert read("\ufeffdata: a\n\n", 1)[0] == [(b"", b"a")]


@pytest.mark.parametrize("value", ["a b", "x" * 257, "\t", "é"])
def test_an_id_that_no_header_field_has_is_not_kept(value):
    assert read(f"id: 1\nid: {value}\ndata: x\n\n")[1] == "1"


def test_an_id_counts_from_the_end_of_its_event_on():
    assert read("id: 1\ndata: x\n\nid: 2\ndata: y\n")[1] == "1"
    assert read("id: 1\n\nid\n\n")[1] == ""


@pytest.mark.parametrize("value", ["", "-1", "1.5", "x", "9" * 30])
def test_a_retry_that_is_no_number_is_none(value):
    assert read(f"retry: {value}\n\n")[2] is None


@pytest.mark.parametrize("size", [None, 1, 7])
def test_what_exceeds_the_limit_ends_the_reading(size):
    fits = "data: " + "x" * 93 + "\n\n"
    assert read(fits, size, max_event_bytes=99)[0] == [(b"", b"x" * 93)]
    for long in ("data: " + "x" * 94, "event: " + "x" * 93, ": " + "x" * 98, "data: 12345\n" * 17):
        assert read(fits + long + "\n\ndata: y\n\n", size, max_event_bytes=99)[0][1:] == ["too long"]


def test_many_small_events_are_no_long_one():
    assert len(events("data: x\n\n" * 1000, max_event_bytes=16)) == 1000
