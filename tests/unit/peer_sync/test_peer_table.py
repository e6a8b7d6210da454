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


GAP = 1 << 20


def test_a_number_far_ahead_that_anyone_may_have_written_is_not_heard():
    """Row 8: after one forged frame nothing of the router was heard for ten minutes."""
    router = hearer()
    router.read(frame(2, 5), 0.0)
    router.read(frame(2, 2**64 - 1), 0.1)
    router.read(frame(2, 6 + GAP), 0.1)
    assert router.counts()["frames_not_heard"] == 2
    router.read(frame(2, 7), 0.2)
    (peer,) = router.peers(0.2)
    assert (peer["sequence"], peer["gaps"], peer["state"]) == (7, 1, "live")


def test_after_a_forged_first_number_the_true_ones_are_heard():
    """Row 8"""
    router = hearer()
    router.read(frame(2, 2**64 - 1), 0.0)
    router.read(frame(2, 5), 0.1)
    router.read(frame(2, 6), 0.2)
    (peer,) = router.peers(0.2)
    assert (peer["sequence"], peer["gaps"]) == (6, 0)


def test_a_sealed_number_far_behind_is_still_a_repetition():
    """A frame that was sealed once can be sent again, so with a secret only later numbers are news."""
    router = testing.PeerRouter(1, key="secret")
    router.declare([(A, "")])
    for sequence in (10, GAP + 20, 11):
        said = peer_frame.empty(router=2, sequence=sequence, full=True, names=[(0, 0, A)])
        router.read(peer_frame.write(said, b"secret"), 0.1)
    (peer,) = router.peers(0.2)
    assert (peer["sequence"], peer["gaps"]) == (GAP + 20, 0)


def test_no_interval_makes_a_router_live_for_weeks():
    """Row 8"""
    router = hearer()
    router.read(frame(2, interval_ms=2**32 - 1), 0.0)
    assert router.peers(179.0)[0]["state"] == "live"
    assert router.peers(181.0)[0]["state"] == "late"


def test_no_router_has_heard_what_was_not_said():
    """Row 8"""
    router = hearer()
    router.read(frame(2, 1, seen=[(1, 2**64 - 1)]), 0.0)
    assert router.peers(0.1)[0]["seen"] == 0
