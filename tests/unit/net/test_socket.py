"""cpp/net/socket.h"""

import errno
import socket

import pytest

from tests.fakes.wire import eventually
from tests.fakes.worker import RefusingPort, SilentPort
from vllm_router import _core_testing as testing


def arrived(ours):
    """What the peer sent is in our socket, and the loop has seen it."""
    eventually(ours.has_unread)
    ours.turn()


# ---- moving bytes


def test_nothing_to_read_would_block(pair):
    ours, _ = pair
    result = ours.try_read(10)
    assert (result["would_block"], result["bytes"], result["eof"]) == (True, 0, False)


def test_bytes_are_read_up_to_the_room(pair):
    ours, peer = pair
    peer.send(b"hello world")
    arrived(ours)
    assert ours.try_read(5)["data"] == b"hello"
    assert ours.try_read(100)["data"] == b" world"
    assert ours.try_read(100)["would_block"]


def test_pieces_are_written_as_one(pair):
    ours, peer = pair
    assert ours.try_write([b"he", b"", b"llo", b" world"])["bytes"] == 11
    assert peer.read_exactly(11) == b"hello world"


def test_a_full_socket_takes_a_part_and_then_would_block(pair):
    ours, _ = pair
    piece = b"x" * 1_000_000
    while not (result := ours.try_write([piece]))["would_block"]:
        assert 0 < result["bytes"] <= len(piece)


def test_the_peer_s_end_is_read_as_an_end(pair):
    ours, peer = pair
    peer.send(b"bye")
    peer.half_close()
    arrived(ours)
    assert ours.try_read(100)["data"] == b"bye"
    eventually(lambda: ours.try_read(100)["eof"])


def test_a_reset_is_read_as_an_error_behind_the_bytes_before_it(pair):
    ours, peer = pair
    peer.send(b"bye")
    arrived(ours)
    peer.reset()
    assert ours.try_read(100)["data"] == b"bye"
    eventually(lambda: not ours.try_read(100)["would_block"])
    assert ours.try_write([b"x"])["error"] in (errno.EPIPE, errno.ECONNRESET)


def test_a_reset_that_was_waited_for_is_still_an_error(pair):
    """mending row 17: looking whether there is something used the error up, and a proper end followed."""
    ours, peer = pair
    peer.send(b"bye")
    arrived(ours)
    peer.reset()
    eventually(ours.is_broken)
    assert ours.readable().get() is True
    assert ours.try_read(100)["data"] == b"bye"
    for _ in range(2):
        assert ours.readable().get() is True
        assert ours.try_read(100)["error"] == errno.ECONNRESET


def test_a_peer_that_sends_no_more_has_not_broken_the_connection(pair):
    ours, peer = pair
    assert not ours.is_broken()
    peer.half_close()
    eventually(lambda: ours.try_read(100)["eof"])
    assert not ours.is_broken()
    peer.reset()
    eventually(ours.is_broken)


def test_unread_bytes_are_seen_without_being_taken(pair):
    ours, peer = pair
    assert not ours.has_unread()
    peer.send(b"hello")
    arrived(ours)
    assert ours.has_unread()
    assert ours.try_read(100)["data"] == b"hello"
    assert not ours.has_unread()
    peer.close()
    assert ours.readable().get() is True
    assert not ours.has_unread()  # an end is not bytes


# ---- closing


def test_closing_sends_fin_and_is_final(pair):
    ours, peer = pair
    ours.close()
    assert peer.ending() == "eof"
    assert not ours.is_open
    assert ours.try_read(10)["error"] == errno.ECANCELED
    assert ours.try_write([b"x"])["error"] == errno.ECANCELED
    assert not ours.has_unread()
    ours.close()
    ours.abort()
    ours.shutdown_write()
    ours.interrupt_read()


def test_aborting_sends_rst(pair):
    ours, peer = pair
    ours.abort()
    assert peer.ending() == "reset"


def test_shutting_down_the_write_side_leaves_the_read_side(pair):
    ours, peer = pair
    ours.shutdown_write()
    assert peer.read_some() == b""
    peer.send(b"still here")
    arrived(ours)
    assert ours.try_read(100)["data"] == b"still here"


# ---- waiting to read


def test_readable_waits_for_bytes(pair):
    ours, peer = pair
    waiting = ours.readable()
    ours.turn()
    assert not waiting.done
    peer.send(b"x")
    assert waiting.get() is True


def test_readable_says_so_when_bytes_are_there_already(pair):
    ours, peer = pair
    peer.send(b"x")
    eventually(ours.has_unread)
    assert ours.readable().get() is True
    assert ours.readable().get() is True  # they still are


@pytest.mark.parametrize("how", ["half_close", "reset"])
def test_an_end_is_something_to_be_read(pair, how):
    ours, peer = pair
    waiting = ours.readable()
    getattr(peer, how)()
    assert waiting.get() is True


@pytest.mark.parametrize("how", ["close", "abort"])
def test_closing_resumes_whoever_waits_with_false(pair, how):
    ours, _ = pair
    waiting = ours.readable()
    getattr(ours, how)()
    assert waiting.get() is False
    assert ours.readable().get() is False


def test_an_interrupted_wait_says_false_and_the_next_one_works(pair):
    ours, peer = pair
    waiting = ours.readable()
    ours.interrupt_read()
    assert waiting.get() is False
    again = ours.readable()
    ours.turn()
    assert not again.done
    peer.send(b"x")
    assert again.get() is True


def test_interrupting_nobody_does_nothing(pair):
    ours, peer = pair
    ours.interrupt_read()
    waiting = ours.readable()
    ours.turn()
    assert not waiting.done
    peer.send(b"x")
    assert waiting.get() is True


def test_what_arrives_after_an_interrupt_is_remembered_for_the_next_wait(pair):
    ours, peer = pair
    waiting = ours.readable()
    ours.interrupt_read()
    assert waiting.get() is False
    peer.send(b"x")  # nobody waits
    arrived(ours)
    assert ours.readable().get() is True


def test_what_arrives_before_anybody_waits_is_remembered(pair):
    ours, peer = pair
    peer.send(b"x")
    arrived(ours)
    assert ours.readable().get() is True


# ---- watching


def test_a_watcher_is_called_once_when_bytes_arrive(pair):
    ours, peer = pair
    watching = ours.watch()
    ours.turn()
    assert not watching.done
    peer.send(b"x")
    assert watching.get() is True


def test_a_watcher_is_called_for_bytes_that_are_there_already(pair):
    ours, peer = pair
    peer.send(b"x")
    eventually(ours.has_unread)
    assert ours.watch().get() is True


def test_a_watcher_is_called_although_an_earlier_wait_ended_unnoticed(pair):
    """The wait ends while nobody waits, the bytes are read all the same, and then somebody watches."""
    ours, peer = pair
    peer.send(b"first")
    arrived(ours)
    assert ours.try_read(100)["data"] == b"first"
    watching = ours.watch()
    ours.turn()
    assert not watching.done
    peer.half_close()
    assert watching.get() is True


def test_a_watcher_that_was_taken_away_is_not_called(pair):
    ours, peer = pair
    watching = ours.watch()
    ours.unwatch()
    peer.send(b"x")
    arrived(ours)
    assert not watching.done
    assert ours.readable().get() is True


def test_awaiting_takes_the_place_of_watching(pair):
    ours, peer = pair
    watching = ours.watch()
    waiting = ours.readable()
    peer.send(b"x")
    assert waiting.get() is True
    ours.turn()
    assert not watching.done


def test_closing_forgets_the_watcher(pair):
    ours, _ = pair
    watching = ours.watch()
    ours.close()
    ours.turn()
    assert not watching.done


# ---- reading at once


def test_read_takes_what_is_there_or_comes(pair):
    ours, peer = pair
    peer.send(b"first")
    eventually(ours.has_unread)
    assert ours.read(100).get() == "data first"
    reading = ours.read(3)
    ours.turn()
    assert not reading.done
    peer.send(b"second")
    assert reading.get() == "data sec"
    assert ours.read(100).get() == "data ond"


def test_read_sees_the_end_and_a_reset(pair):
    ours, peer = pair
    peer.send(b"last")
    peer.half_close()
    assert ours.read(100).get() == "data last"
    assert ours.read(100).get() == "eof"


def test_read_sees_a_reset(pair):
    ours, peer = pair
    reading = ours.read(100)
    peer.reset()
    assert reading.get() == f"error {errno.ECONNRESET}"


def test_read_is_cancelled_by_closing(pair):
    ours, _ = pair
    reading = ours.read(100)
    ours.turn()
    ours.close()
    assert reading.get() == f"error {errno.ECANCELED}"
    assert ours.read(100).get() == f"error {errno.ECANCELED}"


# ---- waiting to write


def test_an_empty_socket_is_writable(pair):
    ours, _ = pair
    assert ours.writable().get() is True


def test_a_full_socket_is_writable_when_the_peer_reads(pair):
    ours, peer = pair
    sent = 0
    while not (result := ours.try_write([bytes(1_000_000)]))["would_block"]:
        sent += result["bytes"]
    waiting = ours.writable()
    ours.turn()
    assert not waiting.done
    peer.read_exactly(sent)
    assert waiting.get() is True


def test_closing_resumes_whoever_waits_to_write_with_false(pair):
    ours, _ = pair
    while not ours.try_write([bytes(1_000_000)])["would_block"]:
        pass
    waiting = ours.writable()
    ours.close()
    assert waiting.get() is False
    assert ours.writable().get() is False


def test_waiting_to_read_and_to_write_do_not_disturb_each_other(pair):
    ours, peer = pair
    while not ours.try_write([bytes(1_000_000)])["would_block"]:
        pass
    reading, writing = ours.readable(), ours.writable()
    peer.send(b"x")
    assert reading.get() is True
    assert not writing.done
    ours.close()
    assert writing.get() is False


# ---- connecting


def test_connecting_reaches_who_listens():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connector = testing.Connector()
        assert connector.connect(["127.0.0.1"], listening.getsockname()[1]).get() == 0
        accepted, _ = listening.accept()
        accepted.close()
        assert connector.takes_open_socket()


def test_connecting_to_nobody_is_refused():
    port = RefusingPort()
    connector = testing.Connector()
    assert connector.connect(["127.0.0.1"], port.port).get() == errno.ECONNREFUSED
    port.stop()


def test_connecting_can_be_cut_short():
    port = SilentPort()
    connector = testing.Connector()
    connecting = connector.connect(["127.0.0.1"], port.port)
    assert not connecting.done
    connector.cancel()
    assert connecting.get() == errno.ECANCELED
    assert not connector.takes_open_socket()
    port.stop()


def test_addresses_are_attempted_in_turn():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connector = testing.Connector()
        assert connector.connect(["127.0.0.2", "127.0.0.1"], listening.getsockname()[1]).get() == 0
        assert connector.takes_open_socket()
    port = RefusingPort()
    assert testing.Connector().connect(["127.0.0.1"] * 2, port.port).get() == errno.ECONNREFUSED
    port.stop()


def test_after_a_cancel_no_further_address_is_attempted():
    port = SilentPort()
    connector = testing.Connector()
    connecting = connector.connect(["127.0.0.1", "127.0.0.2"], port.port)  # the second one would refuse
    assert not connecting.done
    connector.cancel()
    assert connecting.get() == errno.ECANCELED
    port.stop()


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
        ("localhost", None),
        ("1.2.3", None),
        ("1.2.3.4.5", None),
        ("[::1]", None),
        ("", None),
    ],
)
def test_literal_addresses_are_told_from_names(text, parsed):
    assert testing.parse_address(text) == parsed
