"""cpp/base/peer_topic.h: what a topic tells is heard once, with its age, by those who know it."""

from tests.models import peer_frame
from vllm_router import _core_testing as testing

SECTION = 31  # of the topic that these routers have


def test_a_word_is_heard_once_and_when_it_was_told():
    one, other = testing.PeerRouter(1), testing.PeerRouter(2)
    one.write_frames(100.0)
    one.tell_topic(b"word")
    (frame,) = one.write_frames(100.25)
    other.read(frame, 101.0, age=0.75)
    other.read(frame, 101.0)
    one.read(frame, 101.0)  # its own
    assert other.heard_topic == [(1, 0.75, b"word")]
    assert one.heard_topic == []
    (later,) = one.write_frames(100.5)
    other.read(later, 101.0)
    other.read(frame, 102.0)  # someone copied it
    assert len(other.heard_topic) == 1


def test_a_router_without_the_topic_reads_the_rest():
    other = testing.PeerRouter(2)
    other.declare([("http://a:8000", "")])
    frame = peer_frame.empty(
        full=True,
        names=[(0, 0, "http://a:8000")],
        loads=[(0, (3, 0, 0, 0, 0))],
        topics=[(SECTION - 1, b"of another version"), (SECTION, b"word")],
    )
    other.read(peer_frame.write(frame), 100.0)
    other.update(100.0)
    assert other.peer_load("http://a:8000")[0] == 3
    assert other.heard_topic == [(1, 0.0, b"word")]


def test_a_topic_knows_how_many_routers_there_are_or_were():
    one, other = testing.PeerRouter(1), testing.PeerRouter(2)
    for frame in other.write_frames(100.0):
        one.read(frame, 100.0)
    one.update(100.0)
    assert one.topic_turn == (True, 2)
    one.set_connected(False, 101.0)
    one.update(120.0)
    assert one.topic_turn == (False, 2)
    one.set_connected(True, 121.0)
    one.update(121.0)
    assert one.topic_turn == (True, 1)
