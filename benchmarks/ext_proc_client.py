"""A gateway that takes little time: streams of ext_proc on one HTTP/2 connection, in the calling thread.

    with Gateway(port) as gateway:
        picked = gateway.pick(head(...), body(...))        # messages of tests/fakes/data_plane.py, serialized
        picked.endpoint, picked.seconds                    # "10.0.0.1:8000", 0.0004
        gateway.send(picked.stream, response_head(), end=True)
        gateway.finish(picked.stream)

Python's grpcio takes about a millisecond for a stream and has threads of its own. Here the time of a choice
runs from the last write of the request, of one frame, until the bytes of the choice have been read.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from typing import NamedTuple

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.settings import SettingCodes

PATIENCE_S = 60.0
MOST_BYTES = 1 << 18  # of one read
WINDOW = (1 << 31) - 1
HEAD = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/envoy.service.ext_proc.v3.ExternalProcessor/Process"),
    (":authority", "picker"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]
ENDPOINT = re.compile(rb"x-gateway-destination-endpoint[^0-9]+([0-9.]+:[0-9]+)")


class Picked(NamedTuple):
    """A choice."""

    stream: int
    endpoint: str
    seconds: float  # from the last frame of the request to the choice


class _Stream:
    """What has come on a stream."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.messages: list[bytes] = []
        self.sent_back = 0  # bytes of the request's body
        self.ended = False

    def take(self, data: bytes) -> None:
        self.bytes += data
        while len(self.bytes) >= 5:
            end = 5 + struct.unpack_from(">xI", self.bytes)[0]
            if len(self.bytes) < end:
                return
            self.messages.append(bytes(self.bytes[5:end]))
            del self.bytes[:end]


class Gateway:
    """One connection. Streams may be open at once; one at a time has its worker picked."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        quick = {"validate_inbound_headers": False, "validate_outbound_headers": False}
        self._http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8", **quick))
        self._http.initiate_connection()
        self._http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: WINDOW})
        self._http.increment_flow_control_window(WINDOW - 65_535)
        self._streams: dict[int, _Stream] = {}
        self._last_write = 0.0
        self._flush()

    def pick(self, *messages: bytes, body_bytes: int = 0) -> Picked:
        """Begins a stream, and waits for its choice and for the `body_bytes` of its body to come back.

        Raises:
            RuntimeError: the picker rejected the request, or ended the stream or the connection.
        """
        return self.picked(self.begin(*messages), body_bytes)

    def begin(self, *messages: bytes) -> int:
        """Begins a stream, with no wait for its choice."""
        stream: int = self._http.get_next_available_stream_id()
        self._http.send_headers(stream, HEAD)
        self._streams[stream] = _Stream()
        self.send(stream, *messages)
        return stream

    def picked(self, stream: int, body_bytes: int = 0) -> Picked:
        """The choice of a stream that has begun; see `pick()`. Its time is right if no other began since."""
        taken = self._streams[stream]
        begun = at = self._last_write
        while not taken.messages:
            at = self._receive()
        choice = taken.messages.pop(0)
        found = ENDPOINT.search(choice)
        if found is None:
            raise RuntimeError(f"the picker names no endpoint: {ProcessingResponse.FromString(choice)}")
        while self._sent_back(taken) < body_bytes:
            self._receive()
        return Picked(stream, found[1].decode(), at - begun)

    def send(self, stream: int, *messages: bytes, end: bool = False) -> None:
        """Sends messages, with no wait for a response."""
        framed = b"".join(struct.pack(">xI", len(message)) + message for message in messages)
        data = memoryview(framed)
        while len(data):
            room = min(self._http.local_flow_control_window(stream), self._http.max_outbound_frame_size)
            if room <= 0:
                self._flush()
                self._receive()
                continue
            if len(data) <= room:  # all but the last frame
                self._flush()
            self._http.send_data(stream, bytes(data[:room]))
            data = data[room:]
        if end:
            self._http.end_stream(stream)
        self._flush()

    def finish(self, stream: int) -> None:
        """Waits until the picker has ended a stream whose last message was sent."""
        while not self._streams[stream].ended:
            self._receive()
        del self._streams[stream]

    def wait(self, stream: int, messages: int) -> None:
        """Waits for so many messages of a stream, and forgets them."""
        taken = self._streams[stream]
        while len(taken.messages) < messages:
            self._receive()
        del taken.messages[:messages]

    def _sent_back(self, taken: _Stream) -> int:
        for message in taken.messages:
            response = ProcessingResponse.FromString(message)
            mutation = response.request_body.response.body_mutation
            taken.sent_back += len(mutation.streamed_response.body)
        taken.messages.clear()
        return taken.sent_back

    def _flush(self) -> None:
        if data := self._http.data_to_send():
            self._last_write = time.perf_counter()
            self._socket.sendall(data)

    def _receive(self) -> float:
        """Reads once. Returns when that was."""
        data = self._socket.recv(MOST_BYTES)
        at = time.perf_counter()
        if not data:
            raise RuntimeError("the picker closed the connection")
        for event in self._http.receive_data(data):
            if isinstance(event, DataReceived):
                self._streams[event.stream_id].take(event.data)
                self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, TrailersReceived):
                fields = dict(event.headers)
                if fields.get("grpc-status") != "0":
                    raise RuntimeError(f"the picker ended a stream: {fields}")
            elif isinstance(event, StreamEnded):
                self._streams[event.stream_id].ended = True
            elif isinstance(event, (ConnectionTerminated, StreamReset)):
                raise RuntimeError(f"the picker ended it: {event}")
            else:
                assert not isinstance(event, WindowUpdated) or event.delta > 0
        self._flush()
        return at

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
