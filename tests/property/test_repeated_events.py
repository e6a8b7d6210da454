"""Events that differ in their text alone are told by their bytes. Wherever pieces end, that does not show."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

TEXTS = st.sampled_from(
    ["a", "b c", "", "é", '"', "\\", "\n", '"error"', "abort", "data: ", "\u2028", "x" * 2000]
)
# As spelled: what JSON's writers make of a text, and what no reader takes.
SPELLED = TEXTS.map(json.dumps) | st.sampled_from(
    [
        r'"\u00e9"',
        r'"\ud83d\ude00"',
        r'"\ud83d"',
        r'"\x"',
        '"\t"',
        '"a\\',
        "null",
        '{"a":"b"}',
        '"a","text":"b"',
    ]
)
CHAT = 'data: {"id":"1","choices":[{"index":0,"delta":{"content":%s},"finish_reason":null}]}\n\n'
CALL = 'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}}]}\n\n'
SHAPES = st.sampled_from(
    [
        CHAT,
        CALL,
        'data: {"id":"1","choices":[{"index":1,"delta":{"content":%s},"finish_reason":null}]}\n\n',
        'data: {"id":"1","choices":[{"index":0,"text":%s}]}\n\n',
        'data: {"id":"1","choices":[{"index":0,"text":"a","text":%s}]}\n\n',
        'data: {"id":"1","choices":[{"index":0,"delta":{"reasoning":%s}}]}\n\n',
        'data: {"choices":[{"index":0,"delta":{"content":%s}, "logprobs":{"content":[]}}]}\n\n',
        'data:{"choices":[{"index":0,"text":%s}]}\n\n',
        'data: {"choices":[{"index":0,\ndata: "text":%s}]}\n\n',
        'data: {"choices":[{"index":0,"text":%s}]}\r\n\r\n',
        'data: {"choices":[{"index":0,"text":%s,"finish_reason":"stop"}]}\n\n',
        'data: {"error":{"message":%s,"code":500}}\n\n',
        ": %s\n\n",
        "event: x\nid: 1\ndata: [DONE]%.0s\n\n",
    ]
)
# Runs of one shape, as streams have them.
RUNS = st.lists(st.tuples(SHAPES, st.lists(SPELLED, min_size=1, max_size=5)), max_size=5)


def picture_of_text(pieces):
    made = testing.DeliveredText()
    for piece in pieces:
        made.add(piece)
    # Of one that cannot be read, only that is asked.
    return (made.choices, made.head, made.done, made.phase, made.events_without_choice) if made.ok else None


def picture_of_sink(pieces):
    sink = testing.ContinuationSinkHarness()
    for piece in pieces:
        sink.write(piece, False)
    picture = (sink.client, sink.may_continue, sink.ending, sink.hooks)
    sink.write(b"", True)
    return picture, sink.client, sink.whole


@given(RUNS, st.lists(st.integers(1, 300), min_size=1, max_size=20))
@example([(CHAT, ['"a"', '"abort"', r'"\"error\""'])], [1000])
def test_pieces_may_end_anywhere(runs, sizes):
    stream = "".join(shape % text for shape, texts in runs for text in texts).encode()
    bytewise = [stream[at : at + 1] for at in range(len(stream))]
    pieces, at = [], 0
    while at < len(stream):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream[at : at + size])
        at += size
    for picture_of in (picture_of_text, picture_of_sink):
        by_byte = picture_of(bytewise)  # no event is ever whole in one of them
        assert picture_of(pieces) == by_byte
        assert picture_of([stream]) == by_byte
