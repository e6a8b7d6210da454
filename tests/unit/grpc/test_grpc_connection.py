"""cpp/grpc/grpc_connection.h against h2, another implementation of HTTP/2, as its client."""

import struct

import h2.events
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

PATH = "/package.Service/Method"
OK, CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 1, 4, 8, 12, 13
GOAWAY = 7
LARGEST_STREAM = 2**31 - 1


def frame(message, flag=0):
    return struct.pack(">BI", flag, len(message)) + message


def head(path=PATH, method="POST", content_type="application/grpc", metadata=()):
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "router")]
    return [*fields, ("content-type", content_type), ("te", "trailers"), *metadata]


def goaways(data):
    """The last stream and the error of each GOAWAY among whole frames."""
    found = []
    while data:
        length, kind = int.from_bytes(data[:3], "big"), data[3]
        if kind == GOAWAY:
            found.append(struct.unpack(">II", data[9:17]))
        data = data[9 + length :]
    return found


class Pair:
    """A client of h2 and our side, without a network."""

    def __init__(self, **limits):
        self.ours = testing.GrpcConnection(**limits)
        self.client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.client.initiate_connection()
        self.events = []  # ours
        self.received = []  # the client's
        self.acknowledged = 0

    def feed(self):
        """Takes to ours what the client has to send. Returns its number of bytes."""
        data = self.client.data_to_send()
        assert self.ours.feed(data) == ""
        self.events += self.ours.take_events()
        return len(data)

    def written(self):
        """All that ours has to send."""
        out = b""
        more = True
        while more:
            piece, more = self.ours.write()
            out += piece
        self.events += self.ours.take_events()
        return out

    def exchange(self):
        """Until neither has anything to send."""
        while True:
            fed = self.feed()
            out = self.written()
            if not fed and not out:
                return
            self.received += self.client.receive_data(out)

    def open(self, *messages, end=False, **fields):
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, head(**fields))
        for message in messages:
            self.client.send_data(stream, frame(message))
        if end:
            self.client.end_stream(stream)
        return stream

    def take(self):
        """Our events since the last call."""
        events, self.events = self.events, []
        return events

    def of(self, kind, stream):
        return [event for event in self.received if isinstance(event, kind) and event.stream_id == stream]

    def status(self, stream):
        """grpc-status and grpc-message, of trailers or of a response that has nothing else."""
        events = self.of(h2.events.TrailersReceived, stream) or self.of(h2.events.ResponseReceived, stream)
        fields = dict(events[-1].headers)
        assert self.of(h2.events.StreamEnded, stream) != []
        return int(fields["grpc-status"]), fields.get("grpc-message", "")

    def acknowledge(self, stream):
        """Gives credit for what has come of the stream since the last call. Returns its number of bytes."""
        got = sum(event.flow_controlled_length for event in self.of(h2.events.DataReceived, stream))
        new, self.acknowledged = got - self.acknowledged, got
        if new:
            self.client.acknowledge_received_data(new, stream)
        return new

    def messages(self, stream):
        data = b"".join(event.data for event in self.of(h2.events.DataReceived, stream))
        messages, problem, partial = testing.read_grpc_frames([data])
        assert (problem, partial) == ("", 0)
        return messages


def opened(stream, path=PATH, metadata=()):
    return {"kind": "opened", "stream": stream, "path": path, "metadata": list(metadata)}


def message_of(stream, message):
    return {"kind": "message", "stream": stream, "message": message}


def half_closed(stream):
    return {"kind": "half_closed", "stream": stream}


def test_a_stream_opens_with_its_path_and_metadata():
    pair = Pair()
    metadata = [("x-request-id", "7"), ("x-twice", "a"), ("x-twice", "b"), ("user-agent", "test")]
    stream = pair.open(path="/a.B/C", metadata=metadata)
    pair.exchange()
    sent = [(name.encode(), value.encode()) for name, value in metadata]
    assert pair.take() == [opened(stream, "/a.B/C", sent)]
    assert pair.ours.streams == 1
    assert not pair.ours.ended


def test_a_call_has_messages_in_both_directions():
    pair = Pair()
    stream = pair.open(b"one", b"")
    pair.exchange()
    assert pair.take() == [opened(stream), message_of(stream, b"one"), message_of(stream, b"")]
    assert pair.ours.send(stream, b"first")
    pair.exchange()
    (response,) = pair.of(h2.events.ResponseReceived, stream)
    assert dict(response.headers) == {":status": "200", "content-type": "application/grpc"}
    assert pair.messages(stream) == [b"first"]

    pair.client.send_data(stream, frame(b"two"), end_stream=True)
    pair.exchange()
    assert pair.take() == [message_of(stream, b"two"), half_closed(stream)]
    assert pair.ours.send(stream, b"second")
    assert pair.ours.send(stream, b"")
    assert pair.ours.finish(stream)
    pair.exchange()
    assert pair.messages(stream) == [b"first", b"second", b""]
    assert pair.status(stream) == (OK, "")
    assert pair.of(h2.events.StreamReset, stream) == []
    assert (pair.ours.streams, pair.take()) == (0, [])


def test_an_end_comes_behind_messages_that_were_sent_before():
    pair = Pair()
    stream = pair.open(end=True)
    pair.exchange()
    pair.ours.send(stream, b"x")
    pair.exchange()
    pair.ours.finish(stream, 13, "no")  # nothing is queued
    pair.exchange()
    assert pair.messages(stream) == [b"x"]
    assert pair.status(stream) == (INTERNAL, "no")


def test_a_call_may_end_without_a_message():
    pair = Pair()
    stream = pair.open(end=True)
    pair.exchange()
    pair.ours.finish(stream, 5, "not 100 %\n")
    pair.exchange()
    assert pair.of(h2.events.DataReceived, stream) == []
    assert pair.status(stream) == (5, "not 100 %25%0A")
    assert pair.ours.streams == 0


def test_a_client_that_has_not_half_closed_is_told_that_nobody_reads():
    pair = Pair()
    stream = pair.open(b"x")
    pair.exchange()
    pair.ours.send(stream, b"y")
    pair.ours.finish(stream)
    pair.exchange()
    assert pair.status(stream) == (OK, "")
    (reset,) = pair.of(h2.events.StreamReset, stream)
    assert reset.error_code == ErrorCodes.NO_ERROR
    assert pair.ours.streams == 0
    assert [event["kind"] for event in pair.take()] == ["opened", "message"]


def test_a_stream_that_is_over_takes_nothing():
    pair = Pair()
    stream = pair.open()
    pair.exchange()
    assert pair.ours.finish(stream)
    for _ in range(2):  # before and after it has left
        assert not pair.ours.send(stream, b"x")
        assert not pair.ours.finish(stream)
        assert not pair.ours.reset(stream)
        pair.exchange()
    assert pair.ours.unsent_bytes(stream) == 0
    assert not pair.ours.send(99, b"x")


def test_a_reset_of_the_peer_is_told_once():
    pair = Pair()
    stream, other = pair.open(b"x"), pair.open()
    pair.exchange()
    pair.take()
    pair.client.reset_stream(stream, ErrorCodes.CANCEL)
    pair.exchange()
    assert pair.take() == [
        {"kind": "reset", "stream": stream, "code": CANCELLED, "reason": "the peer reset the stream"}
    ]
    assert pair.ours.send(other, b"y")
    pair.exchange()
    assert pair.messages(other) == [b"y"]


def test_a_reset_of_ours_drops_what_is_queued():
    pair = Pair()
    stream = pair.open()
    pair.exchange()
    pair.ours.send(stream, b"x")
    assert pair.ours.reset(stream)
    pair.exchange()
    (reset,) = pair.of(h2.events.StreamReset, stream)
    assert reset.error_code == ErrorCodes.CANCEL
    assert pair.of(h2.events.DataReceived, stream) == []
    assert [event["kind"] for event in pair.take()] == ["opened"]


# Wire bytes of a client that needs nothing of the server.
def conversation():
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, head(metadata=[("x-a", "b" * 30)]))
    client.send_data(1, frame(b"hello") + frame(b"")[:3])
    client.send_headers(3, head(path="/a.B/C"))
    client.send_data(1, frame(b"")[3:] + frame(b"world"), pad_length=5)
    client.send_data(3, frame(b"three"), end_stream=True)
    client.reset_stream(1)
    return client.data_to_send()


def events_of(pieces):
    ours = testing.GrpcConnection()
    events = []
    for piece in pieces:
        assert ours.feed(piece) == ""
        events += ours.take_events()
    return events


def test_every_cut_of_a_conversation_gives_the_same_events():
    wire = conversation()
    expected = [
        opened(1, metadata=[(b"x-a", b"b" * 30)]),
        message_of(1, b"hello"),
        opened(3, "/a.B/C"),
        message_of(1, b""),
        message_of(1, b"world"),
        message_of(3, b"three"),
        half_closed(3),
        {"kind": "reset", "stream": 1, "code": CANCELLED, "reason": "the peer reset the stream"},
    ]
    assert events_of([wire]) == expected
    assert events_of([bytes([byte]) for byte in wire]) == expected
    for cut in range(len(wire)):
        assert events_of([wire[:cut], wire[cut:]]) == expected


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_messages_lie_in_frames_of_any_size(messages, sizes):
    pair = Pair()
    stream = pair.open()
    data = b"".join(map(frame, messages))
    begin = turn = 0
    while begin < len(data):
        size = sizes[turn % len(sizes)]
        pair.client.send_data(stream, data[begin : begin + size])
        begin, turn = begin + size, turn + 1
    pair.client.end_stream(stream)
    pair.exchange()
    assert pair.take() == [
        opened(stream),
        *(message_of(stream, message) for message in messages),
        half_closed(stream),
    ]


def test_a_message_above_the_maximum_ends_its_stream_alone():
    pair = Pair(max_message_bytes=8)
    stream, other = pair.open(b"12345678"), pair.open()
    pair.client.send_data(stream, frame(b"123456789"))
    pair.exchange()
    (*before, reset) = [event for event in pair.take() if event["stream"] == stream]
    assert before == [opened(stream), message_of(stream, b"12345678")]
    assert (reset["kind"], reset["code"]) == ("reset", RESOURCE_EXHAUSTED)
    assert reset["reason"] == "a message has 9 bytes; at most 8 are accepted: send less in one message"
    assert pair.status(stream) == (RESOURCE_EXHAUSTED, reset["reason"])
    assert not pair.ours.send(stream, b"x")
    assert pair.ours.send(other, b"x")


def test_incomplete_messages_share_a_maximum():
    pair = Pair(max_partial_bytes=1000)
    first, second, third = pair.open(), pair.open(), pair.open()
    pair.client.send_data(first, frame(b"x" * 900)[:605])
    pair.client.send_data(second, frame(b"x" * 900)[:605])
    pair.exchange()
    (reset,) = [event for event in pair.take() if event["kind"] == "reset"]
    assert (reset["stream"], reset["code"]) == (second, RESOURCE_EXHAUSTED)
    assert "incomplete messages of this connection have 1210 bytes; at most 1000" in reset["reason"]
    # It is gone, and what is complete does not count.
    pair.client.send_data(first, frame(b"x" * 900)[605:])
    pair.client.send_data(third, frame(b"y" * 990)[:900])
    pair.exchange()
    assert pair.take() == [message_of(first, b"x" * 900)]


def test_a_compressed_message_is_unimplemented():
    pair = Pair()
    stream = pair.open(metadata=[("grpc-encoding", "gzip")])
    pair.client.send_data(stream, frame(b"x", flag=1))
    pair.exchange()
    assert [(event["kind"], event.get("code")) for event in pair.take()] == [
        ("opened", None),
        ("reset", UNIMPLEMENTED),
    ]
    code, text = pair.status(stream)
    assert code == UNIMPLEMENTED
    assert 'grpc-encoding "gzip"' in text


def test_an_end_within_a_message_is_an_error():
    pair = Pair()
    stream = pair.open()
    pair.client.send_data(stream, frame(b"hello")[:7], end_stream=True)
    pair.exchange()
    assert [event["kind"] for event in pair.take()] == ["opened", "reset"]
    assert pair.status(stream)[0] == INTERNAL


@pytest.mark.parametrize(
    "metadata",
    [[("x-long", "a" * 600)], [(f"x-{i}", "") for i in range(20)]],
    ids=["one field", "many fields"],
)
def test_a_head_above_the_maximum_opens_no_stream(metadata):
    pair = Pair(max_head_bytes=600)
    stream = pair.open(b"x", metadata=metadata)
    other = pair.open()
    pair.exchange()
    assert pair.take() == [opened(other)]
    code, text = pair.status(stream)
    assert code == RESOURCE_EXHAUSTED
    assert "more than 600 bytes or 100 fields" in text


def test_a_head_has_at_most_100_fields_of_metadata():
    pair = Pair()
    stream = pair.open(metadata=[(f"x-{i}", "") for i in range(100)])
    more = pair.open(metadata=[(f"x-{i}", "") for i in range(101)])
    pair.exchange()
    assert [event["stream"] for event in pair.take()] == [stream]
    assert pair.status(more)[0] == RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"method": "GET"}, "405"),
        ({"content_type": "application/json"}, "415"),
        ({"content_type": "application/grpcx"}, "415"),
        ({"content_type": "application/grp"}, "415"),
    ],
    ids=["get", "json", "longer", "shorter"],
)
def test_what_is_no_call_of_grpc_gets_a_status_of_http(fields, status):
    pair = Pair()
    stream = pair.open(**fields)
    pair.exchange()
    (response,) = pair.of(h2.events.ResponseReceived, stream)
    assert dict(response.headers) == {":status": status}
    assert pair.take() == []
    assert pair.ours.streams == 0


@pytest.mark.parametrize(
    "content_type", ["application/grpc+proto", "application/grpc;charset=utf-8", "Application/GRPC"]
)
def test_content_types_of_grpc_are_taken(content_type):
    pair = Pair()
    stream = pair.open(content_type=content_type)
    pair.exchange()
    assert pair.take() == [opened(stream)]


def test_a_paused_stream_gives_no_credit_and_others_do():
    pair = Pair(stream_window=1000)
    paused, other = pair.open(), pair.open()
    pair.exchange()
    pair.ours.set_paused(paused, True)
    for stream in (paused, other):
        pair.client.send_data(stream, frame(b"x" * 995))
    pair.exchange()
    assert [event["kind"] for event in pair.take()] == ["opened", "opened", "message", "message"]
    assert pair.client.local_flow_control_window(paused) == 0
    assert pair.client.local_flow_control_window(other) == 1000
    pair.ours.set_paused(paused, False)
    pair.exchange()
    assert pair.client.local_flow_control_window(paused) == 1000


def test_a_message_may_be_larger_than_the_window():
    pair = Pair(stream_window=1000)
    stream = pair.open()
    data = frame(b"x" * 5000)
    pair.exchange()
    while data:
        size = min(len(data), pair.client.local_flow_control_window(stream))
        assert size > 0
        pair.client.send_data(stream, data[:size])
        data = data[size:]
        pair.exchange()
    assert pair.take() == [opened(stream), message_of(stream, b"x" * 5000)]


def test_a_connection_gives_credit_for_streams_that_are_over():
    """What comes after the end of a stream must not use up the window of all."""
    pair = Pair(connection_window=65_535)
    pair.exchange()
    for _ in range(30):
        stream = pair.open()
        pair.feed()
        pair.ours.finish(stream)
        pair.client.send_data(stream, b"x" * 16_384)
        pair.client.send_data(stream, b"x" * 16_384)
        pair.exchange()
    assert pair.client.outbound_flow_control_window > 32_768
    assert pair.ours.streams == 0


def test_what_the_peer_does_not_take_stays_unsent():
    pair = Pair()
    stream = pair.open(end=True)
    pair.exchange()
    message = b"x" * 200_000
    pair.ours.send(stream, message)
    assert pair.ours.unsent_bytes(stream) == len(frame(message))
    pair.ours.finish(stream)
    pair.exchange()
    assert pair.ours.unsent_bytes(stream) == len(frame(message)) - 65_535
    while pair.acknowledge(stream):
        pair.exchange()
    assert pair.messages(stream) == [message]
    assert pair.status(stream) == (OK, "")


def test_many_messages_wait_without_being_lost():
    pair = Pair()
    stream = pair.open(end=True)
    pair.exchange()
    messages = [bytes([i % 256]) * (997 * i % 5000) for i in range(120)]
    for number, message in enumerate(messages):
        pair.ours.send(stream, message)
        pair.exchange()
        if number % 10 == 9:
            pair.acknowledge(stream)
    pair.ours.finish(stream)
    pair.exchange()
    while pair.acknowledge(stream):
        pair.exchange()
    assert pair.messages(stream) == messages


def test_a_write_has_about_as_many_bytes_as_asked_for():
    pair = Pair()
    stream = pair.open(end=True)
    pair.exchange()
    pair.ours.send(stream, b"x" * 60_000)
    piece, more = pair.ours.write(1)
    assert 0 < len(piece) < 20_000
    assert more


def test_streams_beyond_the_maximum_are_rejected():
    pair = Pair(max_streams=2)
    first, second, third = pair.open(), pair.open(), pair.open()  # before the client knows of the maximum
    pair.exchange()
    assert pair.take() == [opened(first), opened(second)]
    (reset,) = pair.of(h2.events.StreamReset, third)
    assert reset.error_code == ErrorCodes.REFUSED_STREAM
    pair.ours.finish(first)
    pair.exchange()
    fourth = pair.open()
    pair.exchange()
    assert pair.take() == [opened(fourth)]


def test_a_client_that_resets_streams_without_end_loses_the_connection():
    pair = Pair(max_resets_per_second=5)
    for _ in range(200):
        pair.client.reset_stream(pair.open())
    pair.feed()
    ((_, error),) = goaways(pair.written())
    assert error != ErrorCodes.NO_ERROR
    assert pair.ours.ended


def test_a_client_that_pings_and_reads_nothing_loses_the_connection():
    pair = Pair()
    pair.exchange()
    for _ in range(1100):
        pair.client.ping(b"12345678")
    assert "Flooding was detected" in pair.ours.feed(pair.client.data_to_send())


def test_trailers_of_a_client_end_its_messages():
    pair = Pair()
    stream = pair.open(b"x")
    pair.client.send_headers(stream, [("x-checksum", "7")], end_stream=True)
    pair.exchange()
    assert pair.take() == [opened(stream), message_of(stream, b"x"), half_closed(stream)]


def test_a_drained_connection_serves_what_is_on_its_way_and_ends_with_its_last_stream():
    pair = Pair()
    first = pair.open()
    pair.exchange()
    pair.ours.drain()
    assert goaways(pair.written()) == [(LARGEST_STREAM, 0)]  # which the client has not seen yet
    second = pair.open()
    pair.feed()
    pair.ours.close()
    assert goaways(pair.written()) == [(second, 0)]
    pair.open()
    pair.feed()
    assert pair.take() == [opened(first), opened(second)]
    pair.ours.finish(first)
    pair.written()
    assert not pair.ours.ended
    pair.ours.finish(second)
    pair.written()
    assert pair.ours.ended


def test_an_idle_connection_ends_when_it_is_closed():
    pair = Pair()
    pair.exchange()
    pair.ours.drain()
    pair.written()
    assert not pair.ours.ended
    pair.ours.close()
    pair.written()
    assert pair.ours.ended


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n"],
)
def test_what_is_no_http2_is_told(data):
    assert "does not speak HTTP/2 as a gRPC client does" in testing.GrpcConnection().feed(data)


def test_a_broken_rule_of_http2_ends_the_connection_with_a_reason():
    pair = Pair()
    pair.exchange()
    assert pair.ours.feed(b"\x00\x00\x01\x06\x00\x00\x00\x00\x00x") == ""  # PING of one byte
    ((_, error),) = goaways(pair.written())
    assert error == ErrorCodes.FRAME_SIZE_ERROR
    assert pair.ours.ended


def test_headers_that_http2_forbids_reset_their_stream_alone():
    pair = Pair()
    pair.exchange()
    pair.client.config.validate_outbound_headers = False
    pair.client.config.normalize_outbound_headers = False
    bad = pair.open(metadata=[("connection", "close")])
    other = pair.open()
    pair.exchange()
    assert pair.take() == [opened(other)]
    (reset,) = pair.of(h2.events.StreamReset, bad)
    assert reset.error_code == ErrorCodes.PROTOCOL_ERROR


def test_a_peer_has_greeted_once_its_settings_have_come():
    ours = testing.GrpcConnection()
    preface, settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\x04\0\0\0\0\0"
    for piece in (preface[:1], preface[1:], settings[:-1]):
        assert ours.feed(piece) == ""
        assert not ours.greeted
    assert ours.feed(settings[-1:]) == ""
    assert ours.greeted


# ---- streams that stand still


@pytest.mark.parametrize("is_finished", [False, True], ids=["open", "finished"])
def test_a_stream_of_which_nothing_is_taken_is_reset(is_finished):
    pair = Pair()
    stalled, taken = pair.open(), pair.open()
    pair.exchange()
    pair.take()
    pair.ours.send(taken, b"hello")
    pair.ours.send(stalled, b"x" * 200_000)
    pair.ours.end_stalled_writes()
    pair.exchange()  # 65,535 bytes of them, as the window is
    if is_finished:
        pair.ours.finish(stalled)
    pair.ours.end_stalled_writes()
    assert pair.take() == []
    pair.ours.end_stalled_writes()
    pair.exchange()
    reason = "the peer takes nothing of what is sent on the stream"
    told = {"kind": "reset", "stream": stalled, "code": DEADLINE_EXCEEDED, "reason": reason}
    assert pair.take() == ([] if is_finished else [told])
    (reset,) = pair.of(h2.events.StreamReset, stalled)
    assert reset.error_code == ErrorCodes.CANCEL
    assert (pair.ours.unsent_bytes(stalled), pair.ours.streams) == (0, 1)


def test_a_stream_of_which_a_little_is_taken_goes_on():
    pair = Pair()
    stream = pair.open()
    pair.exchange()
    pair.ours.send(stream, b"x" * 200_000)
    for _ in range(3):
        pair.exchange()
        pair.ours.end_stalled_writes()
        pair.acknowledge(stream)
    pair.exchange()
    assert pair.messages(stream) == [b"x" * 200_000]


def test_a_message_that_stays_incomplete_ends_its_stream():
    pair = Pair()
    slow, other = pair.open(), pair.open(b"hello")
    pair.client.send_data(slow, frame(b"x" * 100)[:20])
    pair.exchange()
    pair.ours.end_stalled_reads()
    pair.client.send_data(slow, b"x")  # a byte at a time is no completion
    pair.exchange()
    pair.take()
    pair.ours.end_stalled_reads()
    pair.exchange()
    code, text = pair.status(slow)
    assert (code, text) == (
        DEADLINE_EXCEEDED,
        "a message is incomplete for too long, with 21 bytes; send all of it at once",
    )
    assert [(event["stream"], event["code"]) for event in pair.take()] == [(slow, DEADLINE_EXCEEDED)]
    assert pair.of(h2.events.StreamEnded, other) == []


@pytest.mark.parametrize("why", ["another message", "paused"])
def test_a_message_that_has_not_been_incomplete_all_the_time_may_be(why):
    pair = Pair()
    stream = pair.open()
    data = frame(b"x" * 100)
    pair.client.send_data(stream, data[:20])
    pair.exchange()
    pair.ours.end_stalled_reads()
    if why == "paused":
        pair.ours.set_paused(stream, True)
        pair.ours.end_stalled_reads()
        pair.ours.set_paused(stream, False)
    else:
        pair.client.send_data(stream, data[20:] + data[:20])
        pair.exchange()
    pair.ours.end_stalled_reads()
    pair.client.send_data(stream, data[20:])
    pair.exchange()
    assert pair.take()[-1] == message_of(stream, b"x" * 100)
