"""cpp/disaggregation/pd_registration.h: what a message says that a worker of prefill/decode sends."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import pd_registration as twin
from tests.rows import for_each_row
from vllm_router._core_testing import decode_pd_message

MOST = 4096  # bytes of a message
P2P = {"type": "P", "http_address": "10.0.0.1:8000", "zmq_address": "10.0.0.1:21001"}
MORIIO = {
    "type": "D",
    "http_address": "gpu-0:8001",
    "zmq_address": "host:10.0.0.2,handshake:6301,notify:61005",
    "transfer_mode": "WRITE",
    "tp_size": 8,
    "dp_size": 2,
}


def decode(told, identity=b"id"):
    return decode_pd_message([identity, msgpack.packb(told)])


def test_p2p_nccl_tells_its_role_and_addresses():
    assert decode(P2P) == (
        "registration",
        {
            "role": "prefill",
            "http_address": "10.0.0.1:8000",
            "zmq_address": "10.0.0.1:21001",
            "mode": None,
            "tp_size": 1,
            "dp_size": 1,
        },
    )


def test_moriio_tells_its_mode_and_sizes():
    assert decode(MORIIO) == (
        "registration",
        {
            "role": "decode",
            "http_address": "gpu-0:8001",
            "zmq_address": "host:10.0.0.2,handshake:6301,notify:61005",
            "mode": "WRITE",
            "tp_size": 8,
            "dp_size": 2,
        },
    )


def test_an_empty_frame_may_stand_between():
    packed = msgpack.packb(P2P)
    assert decode_pd_message([b"id", b"", packed]) == decode(P2P)
    assert decode_pd_message([b"", packed]) == decode(P2P)
    for frames in ([], [packed], [b"id", b"x", packed], [b"id", b"", b"", packed], [b"id", packed, b""]):
        assert decode_pd_message(frames) == ("malformed", None)


@pytest.mark.parametrize("kind", ["HELLO", "", "p", "PD", "prefill"])
def test_other_types_are_ignored_whatever_else_they_say(kind):
    assert decode({"type": kind}) == ("ignored", None)
    assert decode(MORIIO | {"type": kind, "http_address": "http://evil/"}) == ("ignored", None)


def test_unknown_members_are_skipped():
    assert decode(P2P | {"a": [{"b": [1.5, None, b"x"]}], "type_": "D"}) == decode(P2P)
    nested = msgpack.packb(P2P)[1:]
    deep = b"\x84" + msgpack.packb("x") + b"\x91" * 20 + b"\xc0" + nested
    assert decode_pd_message([b"id", deep]) == ("malformed", None)


@pytest.mark.parametrize("name", ["type", "http_address", "zmq_address"])
def test_role_and_addresses_are_needed(name):
    assert decode({other: value for other, value in P2P.items() if other != name}) == ("malformed", None)
    for value in (None, 7, b"P", ["P"], ""):
        expected = "ignored" if (name, value) == ("type", "") else "malformed"
        assert decode(P2P | {name: value}) == (expected, None)


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("gpu-0:8000", "gpu-0:8000"),
        ("GPU-0.example:65535", "gpu-0.example:65535"),
        ("[fd00::1]:8000", "[fd00::1]:8000"),
        ("[FD00::1]:1", "[fd00::1]:1"),
        ("127.0.0.1:80", "127.0.0.1:80"),
    ],
)
def test_an_address_is_a_host_and_a_port(address, read):
    assert decode(P2P | {"http_address": address})[1]["http_address"] == read


@for_each_row(
    "address",
    [
        "",
        "h",
        ":8000",
        "h:",
        "h:0",
        "h:65536",
        "h:8o",
        "h:-1",
        "http://h:8000",
        "h:8000/x",
        "h:8000/",
        "user@h:8000",
        "h:8000@1",
        "h:8000?x",
        "h:8000#x",
        " h:8000",
        "h :8000",
        "h:8000\r\nX: y",
        "h\0:8000",
        "h\u00e9:8000",
        "[fd00::1]",
        "fd00::1:8000",
        "[fd00::1:8000",
        "[h]:8000",
        "..:8000",
        "1.2.3:8000",
        "h" * 300 + ":8000",
    ],
)
def test_nothing_else_is_an_address(address):
    assert decode(P2P | {"http_address": address}) == ("malformed", None)
    assert decode(P2P | {"zmq_address": address}) == ("malformed", None)


@pytest.mark.parametrize(
    "address",
    [
        "host:10.0.0.1,handshake:6301 ,notify:61005",
        "host:10.0.0.1,",
        ",host:10.0.0.1",
        "host,handshake:6301",
        "host:,handshake:6301",
        "host:a,hand-shake:1",
        "host:a___decode_addr_b,handshake:6301",
        "host:a\r\n,handshake:6301",
        "host:" + "a" * 250 + ",handshake:6301",
        "host:10.0.0.1;handshake:6301",
    ],
)
def test_a_zmq_address_fits_into_a_request_id(address):
    assert decode(MORIIO | {"zmq_address": address}) == ("malformed", None)
    assert decode(MORIIO | {"zmq_address": "host:[fd00::1],handshake:1,notify:2"})[0] == "registration"


@pytest.mark.parametrize("mode", ["read", "", 1, b"READ", "READWRITE"])
def test_a_mode_is_read_or_write(mode):
    assert decode(MORIIO | {"transfer_mode": mode}) == ("malformed", None)
    assert decode(MORIIO | {"transfer_mode": "READ"})[1]["mode"] == "READ"
    assert decode(MORIIO | {"transfer_mode": None})[1]["mode"] is None


@pytest.mark.parametrize("name", ["tp_size", "dp_size"])
def test_a_size_is_1_to_4096(name):
    for size in (0, -1, 4097, 2**40, 1.0, "8", True, [8]):
        assert decode(MORIIO | {name: size}) == ("malformed", None)
    assert decode(MORIIO | {name: 4096})[1][name] == 4096
    assert decode(MORIIO | {name: None})[1][name] == 1


def test_a_member_twice_is_malformed():
    twice = b"\x84" + msgpack.packb(P2P)[1:] + msgpack.packb("type") + msgpack.packb("D")
    assert decode_pd_message([b"id", twice]) == ("malformed", None)
    same = twice[:-1] + b"P"
    assert decode_pd_message([b"id", same]) == ("malformed", None)


@pytest.mark.parametrize(
    "payload", [b"", b"\x80", b"\xc0", b"HELLO", msgpack.packb([P2P]), msgpack.packb({1: "P"})]
)
def test_what_is_no_map_of_members_is_malformed(payload):
    assert decode_pd_message([b"id", payload]) == ("malformed", None)


def test_every_cut_and_every_tail_is_malformed():
    packed = msgpack.packb(MORIIO)
    for end in range(len(packed)):
        assert decode_pd_message([b"id", packed[:end]]) == ("malformed", None)
    assert decode_pd_message([b"id", packed + b"\xc0"]) == ("malformed", None)


def test_a_message_has_at_most_4_kib():
    def of_size(size):
        packed = msgpack.packb(P2P | {"x": b"x" * (size - len(msgpack.packb(P2P)) - 5)})
        assert len(packed) == size
        return packed

    assert decode_pd_message([b"", of_size(MOST)])[0] == "registration"
    assert decode_pd_message([b"", of_size(MOST + 1)]) == ("too_long", None)
    assert decode_pd_message([b"i", of_size(MOST)]) == ("too_long", None)
    assert decode_pd_message([b"i" * 5000]) == ("too_long", None)


def test_a_map_has_at_most_64_members():
    more = {f"x{i}": 1 for i in range(61)}
    assert decode(P2P | more)[0] == "registration"
    assert decode(P2P | more | {"y": 1}) == ("malformed", None)


HTTP = {"10.0.0.1:8000": "10.0.0.1:8000", "GPU:1": "gpu:1", "http://h:1": None, "h": None}
ZMQ = {"10.0.0.1:21001": True, "host:h,handshake:1": True, "h": False, "a:1\r\n": False}
SIZES = st.sampled_from([1, 8, 4096, 4097, 0, -1, None, "8", 1.0, True])
TOLD = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["P", "D", "P", "D", "HELLO", None, 7]),
        "http_address": st.sampled_from([*HTTP, *HTTP, None, 7]),
        "zmq_address": st.sampled_from([*ZMQ, *ZMQ, None, 7]),
        "transfer_mode": st.sampled_from(["READ", "WRITE", None, "x", 7]),
        "tp_size": SIZES,
        "dp_size": SIZES,
        "x": st.sampled_from([None, [1, {"type": "P"}], "x"]),
    },
)


@given(
    TOLD, st.permutations(["type", "http_address", "zmq_address", "transfer_mode", "tp_size", "dp_size", "x"])
)
def test_a_message_is_read_as_its_twin_reads_it(told, order):
    ordered = {name: told[name] for name in order if name in told}
    assert decode(ordered) == twin.decode(ordered, HTTP, ZMQ)


@given(st.binary(max_size=60), st.integers(0, 120), st.integers(0, 255))
def test_any_bytes_are_read_without_harm(junk, at, byte):
    decode_pd_message([b"id", junk])
    packed = bytearray(msgpack.packb(MORIIO))
    packed[at % len(packed)] = byte
    result, told = decode_pd_message([b"id", bytes(packed)])
    assert result in ("registration", "ignored", "malformed")
    assert (told is None) == (result != "registration")
