"""cpp/peer_sync/seal.h: a key for each router and each kind of message, and what is said of others."""

import pytest

from tests.models import peer_frame
from vllm_router import _core_testing as testing

SECRET = b"0123456789abcdef"


def frame(router=5, secret=SECRET):
    return peer_frame.write(peer_frame.empty(router=router), secret)


def read(data, key="0123456789abcdef"):
    return testing.read_peer_frame(data, key)


def test_the_key_is_of_the_router_and_of_the_kind_of_message():
    assert read(frame())["router"] == 5
    data = bytearray(frame())
    data[16:24] = peer_frame.u64(6)  # as if another router had sent it
    with pytest.raises(PermissionError, match="sealed with another secret"):
        read(bytes(data))
    made = frame(secret=b"")
    head, text = made[:48], made[48:]
    other_kind = peer_frame.seal(SECRET, b"VRS1", 5, 1, b"VRP1\1" + head[5:], text)
    with pytest.raises(PermissionError, match="sealed with another secret"):
        read(other_kind)


@pytest.mark.parametrize(
    ("secret", "key", "why"),
    [
        (SECRET, "", "the frame is sealed with a secret, and this router has none"),
        (b"", "another", "the frame is not sealed, and this router has a secret"),
        (SECRET, "another", "the frame was sealed with another secret than this router's, or changed on"),
    ],
)
def test_what_is_said_of_a_frame_that_cannot_be_opened(secret, key, why):
    with pytest.raises(PermissionError, match=why):
        read(frame(secret=secret), key)


def test_of_a_snapshot_the_same_is_said():
    one, other = testing.PeerRouter(1, key="secret"), testing.PeerRouter(2)
    for router in (one, other):
        router.declare([("http://a:8000", "")])
    with pytest.raises(
        PermissionError, match="the snapshot is sealed with a secret, and this router has none"
    ):
        other.read_snapshot(one.write_snapshot())
    with pytest.raises(PermissionError, match="the snapshot is not sealed, and this router has a secret"):
        one.read_snapshot(other.write_snapshot())
