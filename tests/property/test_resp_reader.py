"""RespReader against its slow twin: replies, spoilt and whole, in any pieces."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models import resp as twin
from vllm_router import _core_testing as testing

LINES = st.binary(max_size=20).map(lambda text: text.replace(b"\r\n", b""))
VALUES = st.recursive(
    st.one_of(
        LINES.map(lambda text: b"+" + text + b"\r\n"),
        LINES.map(lambda text: b"-" + text + b"\r\n"),
        st.integers(-(2**63), 2**63 - 1).map(lambda number: b":%d\r\n" % number),
        st.binary(max_size=40).map(lambda text: b"$%d\r\n%s\r\n" % (len(text), text)),
        st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"*0\r\n"]),
    ),
    lambda inner: st.lists(inner, min_size=1, max_size=4).map(
        lambda items: b"*%d\r\n%s" % (len(items), b"".join(items))
    ),
    max_leaves=8,
)
SPOILT = st.one_of(
    VALUES,
    st.binary(max_size=12),
    st.sampled_from(
        [b"$12\r\nab", b"*16385\r\n", b"*2147483647\r\n", b":01\r\n", b"$-2\r\n", b"$1\r\nab\r\n"]
    ),
)


def plain(value):
    if isinstance(value, twin.Status):
        return ("status", bytes(value))
    if isinstance(value, twin.Error):
        return ("error", bytes(value))
    return [plain(item) for item in value] if isinstance(value, list) else value


@given(
    st.lists(st.one_of(VALUES, VALUES, VALUES, SPOILT), max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
    st.sampled_from([40, 200, 1 << 20]),
)
def test_it_reads_what_its_twin_reads(parts, sizes, limit):
    stream = b"".join(parts)
    reader, slow = testing.RespReader(max_reply_bytes=limit), twin.RespReader(limit)
    found, expected, at, good = [], [], 0, True
    for number in range(len(stream) + 1):
        piece = stream[at : at + sizes[number % len(sizes)]]
        at += len(piece)
        replies, problem = reader.feed(piece)
        values, good = slow.feed(piece)
        found += replies
        expected += [plain(value) for value in values]
        assert found == expected
        assert (problem == "") == good
        if at == len(stream):
            break
    assert reader.reply_bytes == len(slow.bytes) or not good
