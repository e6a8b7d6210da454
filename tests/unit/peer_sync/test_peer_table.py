"""cpp/peer_sync/peer_table.h: how many routers it keeps, and which names."""

from tests.models import peer_frame
from vllm_router import _core_testing as testing

A = "http://a:8000"
LOAD = (1, 0, 0, 0, 0)


def hearer():
    router = testing.PeerRouter(1)
    router.declare([(A, "")])
    return router


def frame(number, sequence=1, index=0, **members):
    names = [(index, 0, A)]
    return peer_frame.write(
        peer_frame.empty(
            router=number, sequence=sequence, full=True, names=names, loads=[(index, LOAD)], **members
        )
    )


def test_more_routers_than_it_keeps_are_not_heard_until_one_is_gone():
    router = hearer()
    for number in range(2, 258):
        router.read(frame(number), 0.0)
    router.read(frame(1000), 1.0)
    assert router.counts()["frames_not_heard"] == 1
    router.update(1.0)
    assert router.peer_load(A)[0] == 256
    router.read(frame(1000), 20.0)  # in place of one that is gone
    router.update(20.0)
    assert router.peer_load(A)[0] == 1
    assert len(router.peers(20.0)) == 256


def test_a_name_that_two_full_frames_lack_is_dropped():
    """A worker added again has a new index: the old one's load must not count for ever."""
    router = hearer()
    router.read(frame(2, 1, index=0), 0.0)
    for sequence in (2, 3):
        router.read(frame(2, sequence, index=5), sequence)
    router.update(3.0)
    assert router.peers(3.0)[0]["names"] == 1
    assert router.peer_load(A) == LOAD


def test_a_worker_that_joins_later_gets_the_load_that_was_told_before():
    router = testing.PeerRouter(1)
    router.declare([("http://b:8000", "")])
    router.read(frame(2), 0.0)
    router.declare([("http://b:8000", ""), (A, "")])
    router.update(0.1)
    assert router.peer_load(A) == LOAD


def test_a_peer_with_a_long_interval_is_live_for_three_of_them():
    router = hearer()
    router.read(frame(2, interval_ms=2000), 0.0)
    assert router.peers(5.9)[0]["state"] == "live"
    assert router.peers(6.1)[0]["state"] == "late"
