"""cpp/base/proto_wire.h against protobuf's own encoder and a slow decoder."""

import struct

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from vllm_router import _core_testing as testing

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
NUMBERS = st.integers(1, 2**29 - 1)


def varint(value):
    """The bytes of one, seven bits at a time."""
    out = bytearray()
    while True:
        out.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def slow_write(fields):
    """The twin of proto_write: lengths are known before they are written."""
    out = b""
    for kind, number, value in fields:
        wire = {"varint": VARINT, "fixed64": FIXED64, "double": FIXED64, "fixed32": FIXED32}.get(kind, BYTES)
        out += varint(number << 3 | wire)
        if kind == "varint":
            out += varint(value)
        elif kind == "fixed32":
            out += struct.pack("<I", value)
        elif kind == "fixed64":
            out += struct.pack("<Q", value)
        elif kind == "double":
            out += struct.pack("<d", value)
        else:
            content = value.encode() if kind == "text" else slow_write(value)
            out += varint(len(content)) + content
    return out


LEAVES = st.one_of(
    st.tuples(st.just("varint"), NUMBERS, st.integers(0, 2**64 - 1)),
    st.tuples(st.just("fixed32"), NUMBERS, st.integers(0, 2**32 - 1)),
    st.tuples(st.just("fixed64"), NUMBERS, st.integers(0, 2**64 - 1)),
    st.tuples(st.just("double"), NUMBERS, st.floats(allow_nan=False)),
    st.tuples(st.just("text"), NUMBERS, st.text(max_size=200)),
)
FIELDS = st.recursive(
    st.lists(LEAVES, max_size=6),
    lambda inner: st.lists(LEAVES | st.tuples(st.just("message"), NUMBERS, inner), max_size=6),
    max_leaves=30,
)


@given(FIELDS)
def test_messages_are_the_slow_writer_s(fields):
    assert testing.proto_write(fields) == slow_write(fields)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 16383, 16384, 70000])
def test_the_length_of_a_message_takes_as_many_bytes_as_it_needs(size):
    inner = [("text", 1, "x" * size)]
    fields = [("varint", 3, 1), ("message", 2, [("message", 1, inner)]), ("varint", 4, 1)]
    assert testing.proto_write(fields) == slow_write(fields)


def test_protobuf_reads_what_is_written():
    span = Span.FromString(
        testing.proto_write(
            [
                ("text", 5, "name"),
                ("varint", 6, 3),
                ("fixed64", 7, 2**63 + 1),
                ("fixed32", 16, 0x301),
                ("message", 9, [("text", 1, "k"), ("message", 2, [("double", 4, 0.5)])]),
            ]
        )
    )
    assert (span.name, span.kind, span.start_time_unix_nano, span.flags) == ("name", 3, 2**63 + 1, 0x301)
    assert (span.attributes[0].key, span.attributes[0].value.double_value) == ("k", 0.5)


@given(FIELDS)
def test_the_reader_finds_what_was_written(fields):
    read, ok = testing.proto_read(testing.proto_write(fields))
    assert ok
    for (number, wire, value), (kind, wanted, content) in zip(read, fields, strict=True):
        assert number == wanted
        if kind in ("text", "message"):
            assert wire == BYTES
            assert value == (content.encode() if kind == "text" else slow_write(content))
        elif kind == "double":
            assert (wire, value) == (FIXED64, struct.unpack("<Q", struct.pack("<d", content))[0])
        else:
            assert value == content


@given(st.binary(max_size=60))
def test_any_bytes_are_read_to_an_end(data):
    fields, ok = testing.proto_read(data)
    assert len(fields) <= len(data)
    try:
        AnyMessage.FromString(data)
        Value.FromString(data)
    except Exception:
        return
    # What protobuf takes, groups excepted, this takes as well.
    assert ok or any(byte & 7 in (3, 4) for byte in data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",  # a tag without its value
        b"\x08\x80",  # a varint without its end
        b"\x08" + b"\x80" * 10 + b"\x01",  # of more than ten bytes
        b"\x0a\x05abc",  # a length beyond the end
        b"\x09\x00",  # half of a fixed64
        b"\x0d\x00",  # half of a fixed32
        b"\x00\x00",  # field number 0
        b"\x0b\x0c",  # a group
        b"\x0e",  # wire type 6
    ],
)
def test_malformed_messages_are_told(data):
    assert testing.proto_read(data) == ([], False)
