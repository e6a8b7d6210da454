"""cpp/simulation/websocket_frames.h: beside the library `websockets`, in pieces, and hostile."""

import pytest
from websockets.frames import Frame, Opcode
from websockets.utils import accept_key

from vllm_router import _core_testing as testing

LIMIT = 100_000


def sent(opcode, data=b"", fin=True, mask=True):
    return Frame(opcode, data, fin).serialize(mask=mask)


def read(stream, step=7, limit=LIMIT):
    return testing.read_websocket(stream, step, limit)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1_000_000])
def test_messages_are_read_however_they_arrive(step):
    lengths = (0, 1, 125, 126, 127, 65_535, 65_536, LIMIT) if step > 3 else (0, 1, 126, 300)
    messages = [(Opcode.TEXT, b"x" * length) for length in lengths] + [
        (Opcode.BINARY, b"\0\xff"),
        (Opcode.PING, b"p"),
    ]
    stream = b"".join(sent(opcode, data) for opcode, data in messages)
    assert read(stream, step) == (messages, 0)


def test_fragments_are_joined_with_control_frames_between_them():
    stream = sent(Opcode.TEXT, b"a", fin=False) + sent(Opcode.PING, b"p") + sent(Opcode.CONT, b"b", fin=False)
    stream += sent(Opcode.CONT, b"c") + sent(Opcode.CLOSE)
    assert read(stream) == ([(Opcode.PING, b"p"), (Opcode.TEXT, b"abc"), (Opcode.CLOSE, b"")], 0)


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (sent(Opcode.TEXT, b"x", mask=False), 1002),
        (b"\xc1\x80" + bytes(4), 1002),  # an extension's bit
        (b"\x83\x80" + bytes(4), 1002),  # an opcode that is none
        (sent(Opcode.CONT, b"x"), 1002),  # of no message
        (sent(Opcode.TEXT, b"x", fin=False) + sent(Opcode.TEXT, b"y"), 1002),
        (b"\x09\x80" + bytes(4), 1002),  # a ping in fragments
        (b"\x89\xfe\x00\x7e" + bytes(4 + 126), 1002),  # a long one
        (sent(Opcode.TEXT, b"x" * (LIMIT + 1)), 1009),
        (b"\x81\xff" + b"\xff" * 8 + bytes(4), 1009),
        (sent(Opcode.TEXT, b"x" * LIMIT, fin=False) + sent(Opcode.CONT, b"x"), 1009),
    ],
    # Masks are random, and so would be names made of the streams.
    ids=[
        *("not masked", "an extension", "no opcode", "of no message", "a message within a message"),
        *("a ping in fragments", "a long ping", "too long", "far too long", "too long in fragments"),
    ],
)
def test_a_bad_frame_has_its_code(stream, code):
    assert read(stream, step=len(stream)) == ([], code)


@pytest.mark.parametrize(
    ("opcode", "length"),
    [(Opcode.PONG, 125), *((Opcode.TEXT, length) for length in (0, 1, 125, 126, 127, 65_535, 65_536))],
)
def test_a_frame_is_written_as_the_library_does(opcode, length):
    assert testing.websocket_frame(opcode, "x" * length) == sent(opcode, b"x" * length, mask=False)


def test_the_key_is_accepted_as_the_library_does():
    for key in ("dGhlIHNhbXBsZSBub25jZQ==", "jEFJ4GTfXjcl63ciDu9QeA=="):
        assert testing.websocket_accept(key) == accept_key(key)
