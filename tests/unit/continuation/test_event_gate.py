"""cpp/continuation/event_gate.h: whole events, and those that say that the worker failed."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

TEXT = b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
ABORT = b'data: {"choices":[{"index":0,"text":"","finish_reason":"abort"}]}\n\n'
ERROR = b'data: {"error":{"message":"x","type":"InternalServerError","code":500}}\n\n'
DONE = b"data: [DONE]\n\n"


def take(*pieces):
    """The gate, and what passed of each piece."""
    gate = testing.EventGate()
    return gate, [gate.take(piece) for piece in pieces]


@for_each_row(
    ("stream", "size"),
    [
        (b"", None),
        (b"data: a", None),
        (b"data: a\n", None),
        (b"data: a\n\n", 9),
        (b"data: a\n\ndata: b\n\n", 9),
        (b"data: a\r\n\r\n", 11),
        (b"data: a\r\n\r", 10),
        (b"data: a\r\r", 9),
        (b"data: a\n\r\n", 10),
        (b"data: a\r\n\nb", 10),
        (b"data: a\r\ndata: b\n\n", 18),
        (b"\n", 1),
        (b"\r\n", 2),
        (b": comment\n\n", 11),
        (b"data: " + b"a" * 57 + b"\r\n\r\nb", 67),
        (b"data: " + b"a" * 58 + b"\n\nb", 66),
        (b"data: " + b"a" * 57 + b"\n" + b"b" * 64 + b"\r\rc", 130),
        (b"data: " + b"a" * 500, None),
    ],
)
def test_where_an_event_ends(stream, size):
    assert testing.event_size(stream) == size


def test_whole_events_pass():
    gate, passed = take(TEXT[:10], TEXT[10:] + TEXT[:5], TEXT[5:] + DONE)
    assert passed == [b"", TEXT, TEXT + DONE]
    assert (gate.ending, gate.held) == ("none", b"")


def test_an_incomplete_event_is_held():
    gate, passed = take(TEXT + TEXT[:-1])
    assert passed == [TEXT]
    assert gate.held == TEXT[:-1]


@for_each_row(("event", "ending"), [(ABORT, "aborted"), (ERROR, "server_error")])
def test_an_event_that_ends_the_stream_is_held_with_what_follows(event, ending):
    gate, passed = take(TEXT + event[:20], event[20:] + DONE[:4], DONE[4:])
    assert passed == [TEXT, b"", b""]
    assert (gate.ending, gate.held) == (ending, event + DONE)


@for_each_row(
    "event",
    [
        {"error": {"message": "x", "type": "BadRequestError", "code": 400}},
        {"error": None},
        {"choices": [{"index": 0, "text": 'abort"', "finish_reason": None}]},
        {"choices": [{"index": 0, "text": '"finish_reason":"abort"}]}', "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {"content": '"error"'}, "finish_reason": None}]},
    ],
)
def test_what_only_looks_so_passes(event):
    data = b"data: " + json.dumps(event).encode() + b"\n\n"
    gate, passed = take(data)
    assert passed == [data]
    assert gate.ending == "none"


def test_a_long_event_passes_as_it_comes():
    most = testing.MAX_HELD_EVENT_BYTES
    gate, passed = take(b"x" * most, b"y", ABORT)
    assert passed == [b"", b"x" * most + b"y", ABORT]
    assert gate.passes_all
    assert (gate.ending, gate.held) == ("none", b"")


EVENTS = st.sampled_from(
    [TEXT, ABORT, ERROR, DONE, b": ping\n\n", b"data: a\r\n\r\n", b"data: a\rdata: b\r\r", b"\n"]
)


@given(st.lists(EVENTS, max_size=8), st.data())
def test_no_byte_is_lost_wherever_pieces_end(events, data):
    whole = b"".join(events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    gate, passed = take(*(whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)))
    out = b"".join(passed)
    assert out + gate.held == whole
    ends = [event for event in events if event in (ABORT, ERROR)]
    assert gate.ending == ("none" if not ends else "aborted" if ends[0] == ABORT else "server_error")
    if ends:
        # A piece may end within an end of line, whose second byte then comes in front of the next event.
        assert gate.held.lstrip(b"\r\n").startswith(ends[0])
    assert not out or re.search(rb"(\r\n|\n|\r)(\r\n|\n|\r)\Z|\A(\r\n|\n|\r)+\Z", out)
