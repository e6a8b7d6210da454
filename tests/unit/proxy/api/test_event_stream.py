"""cpp/proxy/api/event_stream.h: pieces that wait for a reader, and who is told."""

import pytest

from vllm_router import _core_testing as testing

MOST = testing.EVENT_STREAM_MOST_WAITING


@pytest.fixture
def stream():
    return testing.EventStream()


def test_pieces_come_in_order_and_then_the_end(stream):
    assert stream.take() is None
    assert stream.add("a") is True
    assert stream.add("b") is True
    stream.end()
    assert not stream.ended
    assert [stream.take(), stream.take(), stream.take()] == ["a", "b", None]
    assert stream.ended


def test_what_has_no_room_is_not_added_until_a_piece_was_written(stream):
    half = "x" * (MOST // 2)
    assert [stream.add(half), stream.add(half), stream.add("y")] == [True, True, False]
    assert stream.take() == half  # it counts until it was written
    assert stream.add("y") is False
    assert stream.take() == half
    assert stream.add("y") is True


def test_a_piece_longer_than_the_room_is_added_where_nothing_waits(stream):
    assert stream.add("x" * (2 * MOST)) is True
    assert stream.add("y") is False


def test_nothing_is_added_behind_the_end(stream):
    stream.end()
    assert stream.add("a") is False
    assert stream.ended


def test_a_reader_is_woken_for_each_piece_and_the_end_until_it_closes(stream):
    woken = []
    stream.open(lambda: woken.append(len(woken)))
    stream.add("a")
    stream.end()
    assert woken == [0, 1]
    stream.close()
    stream.end()
    assert woken == [0, 1]


def test_a_stream_that_its_reader_closed_takes_nothing(stream):
    stream.close()
    assert stream.add("a") is False
