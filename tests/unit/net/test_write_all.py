"""cpp/net/write_all.h"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

PATIENCE = 10
LARGE = b"x" * 8_000_000  # more than the socket buffers of both sides


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (0, ["head", "body", "tail"]),
        (3, ["d", "body", "tail"]),
        (4, ["body", "tail"]),
        (5, ["ody", "tail"]),
        (8, ["tail"]),
        (12, []),
    ],
)
def test_what_was_written_is_dropped_from_the_front(written, left):
    assert testing.skip_written(["head", "body", "tail"], written) == left


@given(st.lists(st.text("abc", max_size=5), max_size=6), st.data())
def test_what_is_left_is_the_rest(pieces, data):
    whole = "".join(pieces)
    written = data.draw(st.integers(0, len(whole)))
    left = testing.skip_written(pieces, written)
    assert "".join(left) == whole[written:]
    assert not left or left[0]


def test_what_the_socket_takes_at_once_needs_no_wait(pair):
    ours, peer = pair
    assert ours.write_all([b"he", b"", b"llo"]).get(PATIENCE) == ("all", 0)
    assert peer.read_exactly(5) == b"hello"
    assert ours.write_all([b"", b""]).get(PATIENCE) == ("all", 0)


def test_a_full_socket_is_waited_for_and_nothing_is_lost(pair):
    ours, peer = pair
    written = ours.write_all([b"begin", LARGE, b"end"])
    assert not written.done
    assert peer.read_exactly(len(LARGE) + 8) == b"begin" + LARGE + b"end"
    end, waits = written.get(PATIENCE)
    assert end == "all"
    assert waits > 0


def test_a_peer_that_takes_nothing_is_reported(pair):
    ours, _ = pair
    assert ours.write_all([LARGE], stall_ms=100).get(PATIENCE) == ("closed", 1)
    assert not ours.is_open


def test_a_close_on_our_side_ends_the_wait(pair):
    ours, _ = pair
    written = ours.write_all([LARGE])
    ours.close()
    assert written.get(PATIENCE)[0] == "closed"


def test_a_connection_that_broke_is_told_from_one_that_we_closed(pair):
    ours, peer = pair
    written = ours.write_all([LARGE])
    peer.reset()
    assert written.get(PATIENCE)[0] == "gone"
