"""cpp/proxy/exchange/sse_keepalive.h: comments to a client that reads, reads nothing, or leaves."""

import socket

import pytest

from vllm_router import _core_testing as testing

HEAD = "HEAD\r\n\r\n"
COMMENT = b"e\r\n: keep-alive\n\n\r\n"


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    with theirs:
        yield ours, theirs


def read(end, size):
    data = b""
    while len(data) < size:
        data += end.recv(size - len(data))
    return data


def fill(end):
    """As much as it takes; the number of bytes."""
    count = 0
    for size in (4096, 1):
        try:
            while True:
                count += end.send(b"x" * size)
        except BlockingIOError:
            pass
    return count


def test_the_head_comes_once_and_comments_go_on(pair):
    ours, theirs = pair
    keepalive = testing.SseKeepalive(ours.detach(), HEAD, 100)
    assert keepalive.comments == 0
    assert read(theirs, len(HEAD) + 3 * len(COMMENT)) == HEAD.encode() + 3 * COMMENT
    assert keepalive.stop() == b""
    assert keepalive.comments >= 3


def test_what_a_client_does_not_take_waits_for_it_in_order(pair):
    """Row 35: one head and one comment, however long it reads nothing."""
    ours, theirs = pair
    count = fill(ours)
    witness_end, witness = socket.socketpair()
    witness_end.setblocking(False)
    stuck = testing.SseKeepalive(ours.detach(), HEAD, 100)
    with witness:
        other = testing.SseKeepalive(witness_end.detach(), HEAD, 100)
        witness.settimeout(10)
        read(witness, len(HEAD) + 4 * len(COMMENT))
        other.stop()
    assert stuck.stop() == HEAD.encode() + COMMENT
    assert stuck.comments == 1
    assert read(theirs, count) == b"x" * count


def test_a_client_that_reads_later_gets_the_rest_and_further_comments(pair):
    ours, theirs = pair
    count = fill(ours)
    keepalive = testing.SseKeepalive(ours.detach(), HEAD, 100)
    assert read(theirs, count) == b"x" * count
    assert read(theirs, len(HEAD) + 2 * len(COMMENT)) == HEAD.encode() + 2 * COMMENT
    keepalive.stop()


def test_a_client_that_takes_nothing_is_lost(pair):
    """Row 35: after the time that it has for any response."""
    ours, _theirs = pair
    fill(ours)
    keepalive = testing.SseKeepalive(ours.detach(), HEAD, 100, 300)
    assert keepalive.lost.get() == "slow"
    assert keepalive.comments == 1


def test_a_client_that_has_left_is_lost(pair):
    ours, theirs = pair
    theirs.close()
    keepalive = testing.SseKeepalive(ours.detach(), HEAD, 100, 300)
    assert keepalive.lost.get() == "gone"
