"""cpp/grpc/grpc_frame.h: messages in a stream of bytes, and texts of trailers."""

import struct
from itertools import pairwise
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


def frame(message, flag=0):
    return struct.pack(">BI", flag, len(message)) + message


def pieces_of(data, cuts):
    return [data[begin:end] for begin, end in pairwise([0, *sorted(cuts), len(data)])]


def test_a_message_has_five_bytes_in_front():
    assert testing.grpc_frame(b"hello") == b"\x00\x00\x00\x00\x05hello"
    assert testing.grpc_frame(b"x" * 0x012345)[:5] == b"\x00\x00\x01\x23\x45"


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_messages_come_in_any_pieces(messages, data):
    stream = b"".join(testing.grpc_frame(message) for message in messages)
    assert stream == b"".join(map(frame, messages))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert testing.read_grpc_frames(pieces_of(stream, cuts)) == (messages, "", 0)


def test_every_cut_of_a_stream_gives_the_same():
    messages = [b"", b"a", b"bc" * 20, b""]
    stream = b"".join(map(frame, messages))
    for cut in range(len(stream) + 1):
        assert testing.read_grpc_frames([stream[:cut], stream[cut:]]) == (messages, "", 0)
    assert testing.read_grpc_frames([bytes([byte]) for byte in stream]) == (messages, "", 0)


def test_a_large_message_comes_whole():
    message = bytes(range(256)) * 4000
    assert testing.read_grpc_frames(pieces_of(frame(message), range(0, len(message), 16384))) == (
        [message],
        "",
        0,
    )


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 9])
def test_bytes_of_a_message_that_is_incomplete_are_counted(cut):
    assert testing.read_grpc_frames([frame(b"first"), frame(b"hello")[:cut]]) == ([b"first"], "", cut)


@pytest.mark.parametrize("flag", [1, 2, 255])
def test_a_compressed_message_ends_the_reading(flag):
    messages, problem, _ = testing.read_grpc_frames([frame(b"first") + frame(b"second", flag)])
    assert (messages, problem) == ([b"first"], "compressed")


def test_a_message_may_have_the_maximum_and_no_byte_more():
    assert testing.read_grpc_frames([frame(b"12345678")], max_message_bytes=8) == ([b"12345678"], "", 0)
    # Its length alone suffices.
    _, problem, _ = testing.read_grpc_frames([struct.pack(">BI", 0, 9)], max_message_bytes=8)
    assert problem == "too_large"
    _, problem, _ = testing.read_grpc_frames([b"\x00\xff\xff\xff\xff"])
    assert problem == "too_large"


@given(st.binary(max_size=40))
def test_a_text_of_a_trailer_is_printable_and_comes_back(text):
    encoded = testing.grpc_message_text(text)
    assert all(" " <= character <= "~" for character in encoded)
    assert unquote_to_bytes(encoded) == text


def test_letters_of_a_text_stay_readable():
    assert testing.grpc_message_text(b"at most 8 bytes: 100 %") == "at most 8 bytes: 100 %25"
