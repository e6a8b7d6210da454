"""cpp/tracing/span_buffer.h: spans wait within limits."""

import threading

from vllm_router import _core_testing as testing


def test_spans_are_taken_in_the_order_in_which_they_came():
    spans = testing.SpanBuffer()
    assert spans.add("ab", 1) == 1
    assert spans.add("c", 2) == 3
    assert spans.take() == (b"abc", 3)
    assert spans.take() == (b"", 0)


def test_what_has_no_room_is_left_out():
    spans = testing.SpanBuffer()
    most = testing.SpanBuffer.MAX_SPANS
    assert spans.add("x", most - 1) == most - 1
    assert spans.add("y", 2) == 0
    assert spans.add("z", 1) == most
    assert spans.add("z", 1) == 0
    assert spans.take() == (b"xz", most)
    assert spans.add("w", 1) == 1


def test_so_is_what_has_too_many_bytes():
    spans = testing.SpanBuffer()
    assert spans.add("x" * testing.SpanBuffer.MAX_BYTES, 1) == 1
    assert spans.add("y", 1) == 0
    assert len(spans.take()[0]) == testing.SpanBuffer.MAX_BYTES


def test_a_reader_beside_writers_loses_none():
    spans = testing.SpanBuffer()
    writers = [threading.Thread(target=lambda: [spans.add("abcd", 1) for _ in range(500)]) for _ in range(4)]
    for writer in writers:
        writer.start()
    taken = []
    while any(writer.is_alive() for writer in writers):
        taken.append(spans.take())
    taken.append(spans.take())
    assert sum(count for _, count in taken) == 2000
    assert b"".join(data for data, _ in taken) == b"abcd" * 2000
