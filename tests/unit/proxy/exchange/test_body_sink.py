"""cpp/proxy/exchange/body_sink.h. Framings of whole responses are in tests/proxy/test_responses.py."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.wire import Wire
from vllm_router import _core_testing as testing

PATIENCE = 10
LARGE = b"x" * 8_000_000  # more than the socket buffers of both sides


@pytest.fixture
def make():
    """make(**options) -> the sink, and the client at the other end."""
    ends = []

    def connect(**options):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            ours = socket.create_connection(listening.getsockname())
            theirs, _ = listening.accept()
        ours.setblocking(False)
        ends.extend([testing.BodySink(ours.detach(), **options), Wire(theirs)])
        return ends[-2:]

    yield connect
    for end in ends:
        end.close()


# ---- a client


def test_the_head_leaves_with_the_first_piece(make):
    sink, client = make(head="HEAD")
    assert sink.write(b"one") == "all"
    assert sink.write(b"two", last=True) == "all"
    assert client.read_exactly(10) == b"HEADonetwo"


def test_a_head_may_come_alone(make):
    sink, client = make(head="HEAD", chunked=True)
    assert sink.write(b"") == "all"
    assert client.read_exactly(4) == b"HEAD"
    assert sink.write(b"", last=True) == "all"
    assert client.read_exactly(5) == b"0\r\n\r\n"


def test_pieces_are_chunks_and_the_last_one_ends_them(make):
    sink, client = make(chunked=True)
    sink.write(b"x" * 26)
    sink.write(b"end", last=True)
    expected = b"1a\r\n" + b"x" * 26 + b"\r\n3\r\nend\r\n0\r\n\r\n"
    assert client.read_exactly(len(expected)) == expected


def test_a_slow_client_is_waited_for(make):
    sink, client = make(chunked=True)
    assert sink.write(LARGE) == "not yet"
    taken = sink.flush()
    framed = b"7a1200\r\n" + LARGE + b"\r\n"
    assert client.read_exactly(len(framed)) == framed
    assert taken.get(PATIENCE) == "all"
    assert sink.write(b"", last=True) == "all"


def test_a_client_that_takes_nothing_is_given_up(make):
    sink, _ = make(stall_ms=100)
    assert sink.write(LARGE) == "not yet"
    assert sink.flush().get(PATIENCE) == "closed"
    assert sink.write(b"more") == "closed"


def test_a_client_that_left_is_told_from_a_socket_that_we_closed(make):
    sink, client = make()
    assert sink.write(LARGE) == "not yet"
    client.reset()
    assert sink.flush().get(PATIENCE) == "gone"


# ---- a copy


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=6), st.integers(1, 40))
def test_a_copy_keeps_the_first_bytes_and_knows_whether_they_are_all(pieces, limit):
    sink = testing.BodySink(socket.socket().detach(), order=["copy"], limit=limit)
    for number, piece in enumerate(pieces, 1):
        assert not sink.copy[2]
        assert sink.write(piece, last=number == len(pieces)) == "all"
    body = b"".join(pieces)
    assert sink.copy == (body[:limit], len(body) >= limit, len(body) <= limit)


def test_a_copy_of_a_body_that_broke_off_is_not_whole(make):
    sink, _ = make(order=["copy"])
    sink.write(b"part")
    assert sink.copy == (b"part", False, False)


# ---- both


@pytest.mark.parametrize("order", [["client", "copy"], ["copy", "client"]])
def test_a_body_goes_to_both(make, order):
    sink, client = make(order=order, head="HEAD", chunked=True)
    sink.write(b"hello")
    sink.write(b" world", last=True)
    expected = b"HEAD5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    assert client.read_exactly(len(expected)) == expected
    assert sink.copy == (b"hello world", False, True)


@pytest.mark.parametrize(("order", "before"), [(["client", "copy"], b""), (["copy", "client"], LARGE)])
def test_the_second_gets_a_piece_once_the_first_has_it(make, order, before):
    sink, client = make(order=order, limit=len(LARGE) + 3)
    assert sink.write(LARGE) == "not yet"
    assert sink.copy[0] == before
    taken = sink.flush()
    assert client.read_exactly(len(LARGE)) == LARGE
    assert taken.get(PATIENCE) == "all"
    assert sink.copy[0] == LARGE
    assert sink.write(b"end", last=True) == "all"
    assert sink.copy == (LARGE + b"end", True, True)


@pytest.mark.parametrize("order", [["client", "copy"], ["copy", "client"]])
def test_the_end_of_the_client_is_the_end_of_both(make, order):
    sink, _ = make(order=order)
    assert sink.write(LARGE) == "not yet"
    sink.close()
    assert sink.flush().get(PATIENCE) == "closed"
