"""cpp/peer_sync/frame.h: bytes to values and back, and whatever else may come from outside."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import peer_frame
from vllm_router import _core_testing as testing

GOLDEN = Path(__file__).parents[2] / "data" / "peer_sync"
FRAME = peer_frame.empty(
    full=True,
    fingerprint=0x1122334455667788,
    router=7,
    sequence=300,
    sent_ms=1_700_000_000_000,
    names=[(0, 0, "http://a:8000"), (200, 2**63, "http://b:8000@1")],
    loads=[(0, (3, 1, 12_000, 768, 36_000)), (200, (0, 0, 0, 0, 0))],
    decisions=[(200, 12_000, 0, [1, 2**64 - 1]), (0, 90, 0, [])],
    forgotten=[(200, 2**63)],
    suspects=[(0, 2)],
    seen=[(9, 2**40)],
    about=[(b"router-0", b"0.2.0")],
    facts=[(1, True, True, 1500, 60_000, 1_700_000_000_000, 2**63, b"http://a:8000")],
)

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
COUNT = st.integers(0, 2**48)
FACT = (st.integers(0, 255), st.booleans(), st.booleans(), U32, U32, U64, U64, st.binary(max_size=30))
FRAMES = st.fixed_dictionaries(
    {
        "full": st.booleans(),
        "bye": st.booleans(),
        "fingerprint": U64,
        "router": U64,
        "sequence": U64,
        "sent_ms": U64,
        "interval_ms": U32,
        "names": st.lists(
            st.tuples(U32, U64, st.text(st.characters(codec="ascii"), max_size=30)), max_size=4
        ),
        "loads": st.lists(st.tuples(U32, st.tuples(*[COUNT] * 5)), max_size=4),
        "decisions": st.lists(
            st.tuples(U32, U32, st.integers(0, 255), st.lists(U64, max_size=5)), max_size=4
        ),
        "forgotten": st.lists(st.tuples(U32, U64), max_size=3),
        "suspects": st.lists(st.tuples(U32, st.integers(0, 255)), max_size=3),
        "seen": st.lists(st.tuples(U64, U64), max_size=3),
        "about": st.lists(st.tuples(st.binary(max_size=256), st.binary(max_size=64)), max_size=1),
        "facts": st.lists(st.tuples(*FACT), max_size=3),
        "staged": st.lists(
            st.tuples(*FACT, st.integers(1, 2), st.integers(0, 65_535), st.binary(max_size=128)), max_size=3
        ),
        "topics": st.lists(st.tuples(st.integers(10, 31), st.binary(max_size=40)), max_size=2),
    }
)
KEYS = st.sampled_from(["", "k", "key" * 40])


@given(frame=FRAMES, key=KEYS)
def test_a_frame_is_written_as_the_slow_twin_writes_it_and_read_back(frame, key):
    data = testing.write_peer_frame(frame, key)
    assert data == peer_frame.write(frame, key.encode())
    assert testing.read_peer_frame(data, key) == frame


@pytest.mark.parametrize("name", ["plain", "keyed"])
def test_the_bytes_of_a_frame_stay_what_they_are(name):
    """Routers of two versions stand in one fleet during an upgrade."""
    golden = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert testing.write_peer_frame(FRAME, "secret" if name == "keyed" else "") == golden


def test_a_sealed_frame_shows_neither_workers_nor_strides():
    data = testing.write_peer_frame(FRAME, "secret")
    for plain in (b"http", struct.pack("<Q", 2**64 - 1), b"router-0"):
        assert plain in testing.write_peer_frame(FRAME, "")
        assert plain not in data


@pytest.mark.parametrize("key", ["", "secret"])
def test_a_frame_cut_anywhere_is_refused(key):
    data = testing.write_peer_frame(FRAME, key)
    for length in range(len(data)):
        with pytest.raises((ValueError, PermissionError)):
            testing.read_peer_frame(data[:length], key)


@given(data=st.data(), key=KEYS)
def test_a_changed_byte_of_a_keyed_frame_is_refused(data, key):
    frame = testing.write_peer_frame(FRAME, key or "k")
    place = data.draw(st.integers(0, len(frame) - 1))
    changed = bytearray(frame)
    changed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((ValueError, PermissionError)):
        testing.read_peer_frame(bytes(changed), key or "k")


@pytest.mark.parametrize(
    ("sent_with", "read_with", "message"),
    [
        ("", "b", "the frame is not sealed, and this router has a secret"),
        ("a", "", "the frame is sealed with a secret, and this router has none"),
        ("a", "b", "the frame was sealed with another secret than this router's, or changed on its way"),
    ],
)
def test_a_key_must_be_the_same(sent_with, read_with, message):
    with pytest.raises(PermissionError) as refusal:
        testing.read_peer_frame(testing.write_peer_frame(FRAME, sent_with), read_with)
    assert str(refusal.value) == message


def with_body(body, sections=1):
    plain = peer_frame.write(peer_frame.empty())
    return plain[:6] + struct.pack("<H", sections) + plain[8:44] + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the bytes begin like no frame (VRP1) of a router"),
        (b"VRP2" + bytes(44), "the bytes begin like no frame (VRP1) of a router"),
        (bytes((1 << 20) + 1), "the frame has 1048577 bytes; at most 1048576 are read"),
        (with_body(b"\x01\xff\xff\xff"), "section 0 goes beyond the frame's end"),
        (
            with_body(b"\x02\x01\x00\x00\x05"),
            "section 0 (loads) is cut off, or has a number that is too large",
        ),
        (
            with_body(b"\x05\x02\x00\x00" + b"\xff\xff"),
            "section 0 (suspects) is cut off, or has a number that is too large",
        ),
        (with_body(b"\x06\x01\x00\x00\x00" + b"x"), "behind the last section are 1 bytes"),
        (
            with_body(peer_frame.section(3, [b"\x00\x00\x00" + peer_frame.varint(4097) + bytes(4097 * 8)])),
            "section 0 (decisions) is cut off, or has a number that is too large",
        ),
        (
            with_body(peer_frame.section(1, [b"\x00" + bytes(8) + peer_frame.varint(5000) + bytes(5000)])),
            "section 0 (workers) is cut off, or has a number that is too large",
        ),
    ],
)
def test_what_is_wrong_with_a_frame_is_said_without_its_content(data, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        testing.read_peer_frame(data)


def test_sections_of_a_later_version_are_skipped():
    data = with_body(
        peer_frame.section(99, [b"whatever"]) + peer_frame.section(5, [b"\x03\x01"]) + b"", sections=2
    )
    assert testing.read_peer_frame(data)["suspects"] == [(3, 1)]
    longer = bytearray(peer_frame.section(5, [b"\x03\x01"]) + b"more")
    longer[1] += 4
    assert testing.read_peer_frame(with_body(bytes(longer)))["suspects"] == [(3, 1)]


STAGED = (0, True, False, 1000, 0, 1_700_000_000_000, 7, b"http://p:8000", 1, 8998, b"g/16")


def test_a_worker_with_a_stage_is_in_no_section_that_routers_without_stages_read():
    """They would add it as a worker that computes both halves."""
    frame = peer_frame.empty(staged=[STAGED])
    assert testing.write_peer_frame(frame) == with_body(
        peer_frame.section(
            9,
            [peer_frame.fact_of(*STAGED[:8]) + peer_frame.varint(1) + peer_frame.varint(8998) + b"\x04g/16"],
        )
    )


@pytest.mark.parametrize("stage", [0, 3, 255])
def test_a_worker_of_a_stage_that_is_not_known_is_left_out(stage):
    data = peer_frame.write(peer_frame.empty(staged=[(*STAGED[:8], stage, 1, b""), STAGED]))
    assert testing.read_peer_frame(data)["staged"] == [STAGED]


@pytest.mark.parametrize(
    "end",
    [
        b"\x80\x02\x00\x00",
        b"\x01\x80\x80\x04\x00",
        b"\x01\x00\x81\x01" + b"g" * 129,
        b"\x01\x00\x02g",
        b"\x01",
        b"",
    ],
)
def test_a_stage_port_or_group_out_of_range_is_a_bad_frame(end):
    data = with_body(peer_frame.section(9, [peer_frame.fact_of(*STAGED[:8]) + end]))
    with pytest.raises(
        ValueError, match=r"^section 0 \(staged\) is cut off, or has a number that is too large$"
    ):
        testing.read_peer_frame(data)
