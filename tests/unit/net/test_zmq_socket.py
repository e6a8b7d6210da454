"""Our ZeroMQ sockets, in C++, against pyzmq's."""

import gc
import os
import threading

import pytest

from vllm_router import RouterError
from vllm_router import _core_testing as testing

zmq = pytest.importorskip("zmq")

PATIENCE_MS = 30_000


@pytest.fixture
def theirs():
    """Makes pyzmq sockets, bound to a free port."""
    opened = []  # pyzmq's context does not keep them
    with zmq.Context() as context:

        def open_socket(kind, **options):
            socket = context.socket(kind)
            opened.append(socket)
            socket.linger = 0
            socket.rcvtimeo = socket.sndtimeo = PATIENCE_MS
            for name, value in options.items():
                setattr(socket, name, value)
            socket.bind("tcp://127.0.0.1:*")
            return socket

        yield open_socket
        for socket in opened:
            socket.close()


def connected(kind, their_socket, **options):
    """Our socket, when both ends have agreed on the protocol."""
    ours = testing.ZmqSocket(testing.ZmqContext(), kind, **options)
    monitor = ours.monitor()
    ours.connect(endpoint_of(their_socket))
    assert next_event(monitor) == ("connected", endpoint_of(their_socket))
    return ours, monitor


def endpoint_of(their_socket):
    return their_socket.last_endpoint.decode()


def next_event(monitor):
    assert testing.zmq_poll([monitor], PATIENCE_MS)[0][0]
    return monitor.next()


def received(socket, **limits):
    assert testing.zmq_poll([socket], PATIENCE_MS)[0][0]
    return socket.receive(**limits)


def send_when_heard(their_xpub, *messages):
    """An XPUB receives the subscription, so nothing is sent before it."""
    their_xpub.recv()
    for message in messages:
        their_xpub.send_multipart(message)


def test_a_subscriber_receives_whole_messages_in_order(theirs):
    publisher = theirs(zmq.XPUB)
    ours, _ = connected("SUB", publisher, subscriptions=[""])
    sent = [[b"topic", bytes([i]), os.urandom(i * 100)] for i in range(20)] + [[b""], [b"", b"", b""]]
    send_when_heard(publisher, *sent)
    assert [received(ours) for _ in sent] == sent
    assert ours.receive() is None


def test_a_subscriber_receives_what_begins_with_its_topics(theirs):
    publisher = theirs(zmq.XPUB)
    ours, _ = connected("SUB", publisher, subscriptions=["kv@", "x"])
    publisher.recv()  # the other one follows, so both are there
    send_when_heard(publisher, [b"kv@a", b"1"], [b"other", b"2"], [b"xy", b"3"], [b"kv", b"4"], [b"x", b"5"])
    assert [received(ours)[1] for _ in range(3)] == [b"1", b"3", b"5"]


def test_a_message_of_more_frames_than_the_limit_is_dropped_and_the_next_is_whole(theirs):
    publisher = theirs(zmq.XPUB)
    ours, _ = connected("SUB", publisher, subscriptions=[""])
    send_when_heard(publisher, [b"a"] * 9, [b"b"] * 3, [b"c"] * 4)
    assert received(ours, max_frames=3) == "too many frames"
    assert received(ours, max_frames=3) == [b"b"] * 3
    assert received(ours, max_frames=3) == "too many frames"
    assert ours.receive() is None


def test_a_peer_that_sends_a_longer_frame_is_disconnected_for_good(theirs):
    publisher = theirs(zmq.XPUB, xpub_verbose=True)  # so that it tells of the second subscription
    ours, monitor = connected("SUB", publisher, subscriptions=[""], max_frame_bytes=1000, reconnect_ms=10)
    send_when_heard(publisher, [b"x" * 1000], [b"x" * 1001])
    assert received(ours) == [b"x" * 1000]
    assert next_event(monitor)[0] == "disconnected"
    assert testing.zmq_poll([ours, monitor], 200) == [(False, False)] * 2, "libzmq does not connect again"
    another, _ = connected("SUB", publisher, subscriptions=[""])
    while publisher.recv() != b"\1":
        pass
    publisher.send_multipart([b"after"])
    assert received(another) == [b"after"]


def test_an_event_that_nothing_reads_stops_no_other_socket(theirs):
    publisher, other = theirs(zmq.XPUB), theirs(zmq.XPUB, xpub_verbose=1)
    context = testing.ZmqContext()
    monitored = testing.ZmqSocket(context, "SUB", subscriptions=[""])
    monitor = monitored.monitor()
    monitored.connect(endpoint_of(publisher))
    assert next_event(monitor)[0] == "connected"
    ours = testing.ZmqSocket(context, "SUB", subscriptions=[""])
    ours.connect(endpoint_of(other))
    assert other.recv() == b"\x01"
    del monitor
    gc.collect()
    publisher.close()  # an event, which nothing reads
    again = testing.ZmqSocket(context, "SUB", subscriptions=[""])
    again.connect(endpoint_of(other))
    assert other.poll(PATIENCE_MS) != 0, "libzmq's I/O thread waits"


def test_the_monitor_tells_of_a_loss_and_of_the_next_connection(theirs):
    publisher = theirs(zmq.XPUB)
    endpoint = endpoint_of(publisher)
    ours, monitor = connected("SUB", publisher, subscriptions=[""], reconnect_ms=10)
    assert monitor.next() is None
    publisher.close()
    assert next_event(monitor) == ("disconnected", endpoint)
    assert monitor.next() is None, "an attempt that finds no listener is no event"
    again = theirs(zmq.XPUB)
    again.bind(endpoint)
    assert next_event(monitor) == ("connected", endpoint)
    assert ours.receive() is None, "which subscribes again"
    send_when_heard(again, [b"hello again"])
    assert received(ours) == [b"hello again"]


def test_a_dealer_and_a_router_exchange_requests_and_responses(theirs):
    router = theirs(zmq.ROUTER)
    ours, _ = connected("DEALER", router)
    assert ours.send([b"", b"\0" * 8])
    identity, *request = router.recv_multipart()
    assert request == [b"", b"\0" * 8]
    router.send_multipart([identity, b"", b"topic", b"7", b"payload"])
    assert received(ours) == [b"", b"topic", b"7", b"payload"]


def test_our_router_responds_to_a_dealer(theirs):
    ours = testing.ZmqSocket(testing.ZmqContext(), "ROUTER")
    ours.bind("tcp://127.0.0.1:*")
    dealer = theirs(zmq.DEALER)
    dealer.connect(ours.last_endpoint)
    dealer.send_multipart([b"", b"from"])
    identity, *request = received(ours)
    assert request == [b"", b"from"]
    assert ours.send([identity, b"", b"response"])
    assert dealer.recv_multipart() == [b"", b"response"]
    assert ours.send([b"gone", b"dropped"])


def test_our_publisher_names_its_port_and_is_heard(theirs):
    ours = testing.ZmqSocket(testing.ZmqContext(), "PUB")
    monitor = ours.monitor()
    ours.bind("tcp://127.0.0.1:*")
    assert ours.last_endpoint.startswith("tcp://127.0.0.1:")
    subscriber = theirs(zmq.SUB, subscribe=b"")
    subscriber.connect(ours.last_endpoint)
    assert next_event(monitor)[0] == "connected"
    subscriber.rcvtimeo = 20
    for _ in range(1000):  # until the subscription is there
        assert ours.send([b"", b"12345678", b"payload"])
        try:
            assert subscriber.recv_multipart() == [b"", b"12345678", b"payload"]
            break
        except zmq.Again:
            continue
    else:
        pytest.fail("nothing was heard")


def test_a_message_names_its_connection_as_the_monitor_does_when_it_is_lost(theirs):
    ours = testing.ZmqSocket(testing.ZmqContext(), "SUB", subscriptions=[""])
    monitor = ours.monitor()
    ours.bind("tcp://127.0.0.1:*")
    connections = {}
    publishers = {name: theirs(zmq.XPUB) for name in (b"first", b"second")}
    for name, publisher in publishers.items():
        publisher.connect(ours.last_endpoint)
        while not publisher.poll(10):
            testing.zmq_poll([ours], 0)  # a bound socket subscribes within a call
        send_when_heard(publisher, [name])
        assert testing.zmq_poll([ours], PATIENCE_MS)[0][0]
        connections[name] = ours.receive_connection()
        assert next_event(monitor)[0] == "connected"
    assert len(set(connections.values())) == 2
    assert min(connections.values()) >= 0
    publishers[b"second"].close()
    assert testing.zmq_poll([monitor], PATIENCE_MS)[0][0]
    assert monitor.next_connection() == connections[b"second"]


def test_what_cannot_be_sent_is_false_and_does_not_wait():
    alone = testing.ZmqSocket(testing.ZmqContext(), "DEALER")
    alone.bind("tcp://127.0.0.1:*")
    assert not alone.send([b"a", b"b"])
    assert testing.zmq_poll([alone], 0, for_sending=True) == [(False, False)]


def test_a_send_is_false_at_the_limit_and_takes_whole_messages_after_it(theirs):
    router = theirs(zmq.ROUTER, rcvhwm=1)
    ours, _ = connected("DEALER", router, send_limit=2)
    sent = 0
    while ours.send([b"%d" % sent, b"x" * 1_000_000]):
        sent += 1
    assert 2 <= sent < 100
    assert [router.recv_multipart()[1] for _ in range(sent)] == [b"%d" % i for i in range(sent)]
    assert testing.zmq_poll([ours], PATIENCE_MS, for_sending=True) == [(False, True)]
    assert ours.send([b"next", b""])
    assert router.recv_multipart()[1:] == [b"next", b""]


def test_a_poll_waits_for_sockets_and_descriptors_together(theirs):
    publisher = theirs(zmq.XPUB)
    ours, monitor = connected("SUB", publisher, subscriptions=[""])
    reading, writing = os.pipe()
    try:
        assert testing.zmq_poll([ours, monitor, reading], 0) == [(False, False)] * 3
        waker = threading.Thread(target=os.write, args=(writing, b"!"))
        waker.start()
        assert testing.zmq_poll([ours, monitor, reading], PATIENCE_MS) == [
            (False, False),
            (False, False),
            (True, False),
        ]
        waker.join()
        send_when_heard(publisher, [b"hello"])
        assert testing.zmq_poll([ours, monitor], PATIENCE_MS) == [(True, False), (False, False)]
    finally:
        os.close(reading)
        os.close(writing)
    assert testing.zmq_poll([reading], 0) == [(True, False)], "reading shows the error"


@pytest.mark.parametrize("endpoint", ["", "here", "tcp://", "tcp://127.0.0.1", "http://127.0.0.1:1"])
def test_an_endpoint_that_is_none_is_named(endpoint):
    ours = testing.ZmqSocket(testing.ZmqContext(), "SUB")
    for call, verb in [(ours.connect, "connect to"), (ours.bind, "listen on")]:
        with pytest.raises(ValueError, match=f"^cannot {verb} {endpoint}: .*tcp://HOST:PORT"):
            call(endpoint)


def test_a_port_in_use_is_named(theirs):
    endpoint = endpoint_of(theirs(zmq.XPUB))
    ours = testing.ZmqSocket(testing.ZmqContext(), "PUB")
    with pytest.raises(OSError, match=f"cannot listen on {endpoint}: Address already in use"):
        ours.bind(endpoint)


def test_an_option_that_libzmq_rejects_is_named():
    with pytest.raises(ValueError, match="ZeroMQ option RCVHWM is -1: Invalid argument"):
        testing.ZmqSocket(testing.ZmqContext(), "SUB", receive_limit=-1)
    with pytest.raises(ValueError, match="ZeroMQ option SUBSCRIBE is topic"):
        testing.ZmqSocket(testing.ZmqContext(), "PUB", subscriptions=["topic"])


def test_every_option_is_taken(theirs):
    publisher = theirs(zmq.XPUB)
    ours, _ = connected(
        "SUB",
        publisher,
        receive_limit=4096,
        send_limit=10,
        max_frame_bytes=64 << 20,
        reconnect_ms=1000,
        reconnect_max_ms=60_000,
        heartbeat_ms=10_000,
        heartbeat_timeout_ms=30_000,
        keepalive_idle_s=30,
        keepalive_interval_s=10,
        keepalive_count=3,
        ipv6=True,
        subscriptions=[""],
    )
    send_when_heard(publisher, [b"heard"])
    assert received(ours) == [b"heard"]


def test_a_full_context_says_how_many_sockets_it_allows():
    context = testing.ZmqContext(max_sockets=2)
    sockets = [testing.ZmqSocket(context, "SUB")]
    with pytest.raises(RouterError, match="Too many open files; the context allows 2"):  # noqa: PT012
        for _ in range(3):
            sockets.append(testing.ZmqSocket(context, "SUB"))
    sockets.clear()


def test_sockets_outlive_the_context_they_were_made_with(theirs):
    publisher = theirs(zmq.XPUB)
    context = testing.ZmqContext()
    ours = testing.ZmqSocket(context, "SUB", subscriptions=[""])
    monitor = ours.monitor()
    del context
    gc.collect()
    ours.connect(endpoint_of(publisher))
    send_when_heard(publisher, [b"heard"])
    assert received(ours) == [b"heard"]
    del ours
    assert next_event(monitor)[0] == "connected"


def test_closing_does_not_wait_for_what_was_not_sent():
    context = testing.ZmqContext()
    ours = testing.ZmqSocket(context, "DEALER")
    ours.connect("tcp://127.0.0.1:1")
    while ours.send([b"x" * 1000]):
        pass
    del ours, context
    gc.collect()
