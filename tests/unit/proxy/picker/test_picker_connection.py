"""cpp/proxy/picker/picker_connection.h: calls of one connection, good and bad."""

import collections
import contextlib
import re
import socket
import struct

import grpc
import h2.events
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from tests.fakes.authority import Authority
from tests.fakes.data_plane import BUFFERED, DUPLEX, body, head, response_head
from tests.fakes.wire import PATIENCE, eventually


def protocol_errors(router):
    (found,) = re.findall(r"epp_protocol_errors_total (\d+)", router.server.metrics_text())
    return int(found)


def test_many_streams_share_a_connection(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0)
    plane = data_plane(router)
    streams = [plane.stream() for _ in range(50)]
    for stream in streams:
        stream.send(head())
    assert {stream.choice() for stream in streams} == {worker.authority}
    assert sum(router.loads()) == 50
    for stream in streams:
        stream.send(response_head(end=True))
        stream.close()
    router.wait_for_load(0)


def test_a_body_larger_than_all_windows_comes_back(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0)
    stream = data_plane(router).stream()
    stream.send(head(method="POST", mode=DUPLEX, end=False))
    stream.choice()
    pieces = [bytes([i]) * 1_000_000 for i in range(20)]
    stream.send(*(body(piece, end=i == 19) for i, piece in enumerate(pieces)))
    came, ended = b"", False
    while not ended:
        part = stream.receive().request_body.response.body_mutation.streamed_response
        came += part.body
        ended = part.end_of_stream
    assert came == b"".join(pieces)
    stream.close()


@pytest.mark.parametrize("what", [b"\xff", b"\x12\x05abc"], ids=("tag", "length"))
def test_a_malformed_message_ends_its_stream_alone(harness, what):
    router = harness.router(harness.worker(), epp_port=0)
    with harness.keeping_descriptors():
        channel = grpc.insecure_channel(f"127.0.0.1:{router.server.epp_port}")
        call = channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")(
            iter([what]), timeout=PATIENCE
        )
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert protocol_errors(router) == 1
    channel.close()


def test_a_method_that_is_not_served_is_unimplemented(harness):
    router = harness.router(harness.worker(), epp_port=0)
    with harness.keeping_descriptors():
        channel = grpc.insecure_channel(f"127.0.0.1:{router.server.epp_port}")
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/a.Service/Method")(b"", timeout=PATIENCE)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    channel.close()


def test_a_client_of_http_1_is_sent_away(harness):
    router = harness.router(harness.worker(), epp_port=0)
    client = harness.client_at(router.server.epp_port)
    client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    client.read_to_end()
    assert protocol_errors(router) == 1


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize("said", [b"", b"P", PREFACE], ids=["nothing", "a byte", "preface"])
@pytest.mark.parametrize("port", ["epp_port", "epp_health_port"])
def test_a_client_that_does_not_begin_is_closed(harness, said, port):
    router = harness.router(harness.worker(), epp_port=0, epp_health_port=0, client_head_timeout_secs=0.2)
    with socket.create_connection(("127.0.0.1", getattr(router.server, port)), PATIENCE) as silent:
        silent.sendall(said)
        while silent.recv(4096):
            pass


def test_the_health_port_has_a_maximum_of_its_own(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0, epp_health_port=0)
    with contextlib.ExitStack() as stack:
        place = ("127.0.0.1", router.server.epp_health_port)
        probes = [stack.enter_context(socket.create_connection(place, PATIENCE)) for _ in range(65)]
        while probes[64].recv(4096):
            pass
        assert "vllm_router_epp_connections_refused_total 1\n" in router.server.metrics_text()
        assert data_plane(router).pick(head()) == worker.authority
        for probe in probes[:64]:
            assert probe.recv(1) != b""  # our settings


def test_a_lost_connection_returns_the_load_of_all_its_streams(harness, data_plane):
    router = harness.router(harness.worker(), policy="consistent_hash", epp_port=0)
    plane = data_plane(router)
    streams = [plane.stream() for _ in range(10)]
    for stream in streams[:5]:
        stream.send(head())
        stream.choice()
    for stream in streams[5:]:
        stream.send(head(method="POST", mode=BUFFERED))
        stream.receive()
    assert sum(router.loads()) == 5
    plane.__exit__()
    router.must_rest()
    for stream in streams:
        stream.cancel()


# ---- gateways that stand still


class RawPlane:
    """A gateway that decides itself what it reads and sends: by default it gives no credit for responses."""

    def __init__(self, port, window=0):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.events = collections.deque()
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.until(lambda event: isinstance(event, h2.events.SettingsAcknowledged))
        self.until(lambda event: isinstance(event, h2.events.SettingsAcknowledged))

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def until(self, ends):
        """Reads until an event of this kind. Returns it."""
        while True:
            while self.events:
                event = self.events.popleft()
                if ends(event):
                    return event
            self.flush()
            data = self.socket.recv(1 << 16)
            assert data, "the connection was closed"
            self.events += self.h2.receive_data(data)
            self.flush()

    def open(self):
        stream = self.h2.get_next_available_stream_id()
        path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "router")]
        self.h2.send_headers(stream, [*fields, ("content-type", "application/grpc"), ("te", "trailers")])
        return stream

    def send(self, stream, *messages):
        data = b"".join(
            struct.pack(">BI", 0, message.ByteSize()) + message.SerializeToString() for message in messages
        )
        while data:
            size = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
            if size == 0:
                self.until(lambda event: isinstance(event, h2.events.WindowUpdated))
            else:
                self.h2.send_data(stream, data[:size])
                data = data[size:]
        self.flush()

    def round_trip(self):
        """What was sent before has been taken, and its consequences of the same turn have been written."""
        for _ in range(2):
            self.h2.ping(b"12345678")
            self.until(lambda event: isinstance(event, h2.events.PingAckReceived))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def body_memory(router):
    (found,) = re.findall(
        r"^vllm_router_body_memory_bytes (\d+)$", router.server.metrics_text(), re.MULTILINE
    )
    return int(found)


LARGE = body(b"x" * 3_000_000)


@pytest.mark.parametrize("is_half_closed", [False, True], ids=["open", "half-closed"])
def test_a_body_that_goes_back_holds_its_memory_until_it_is_read(harness, is_half_closed):
    router = harness.router(harness.worker(), policy="cache_aware", epp_port=0)
    with RawPlane(router.server.epp_port) as plane:
        stream = plane.open()
        plane.send(stream, head(method="POST", mode=DUPLEX), LARGE)
        if is_half_closed:
            plane.h2.end_stream(stream)
        plane.round_trip()
        assert 'epp_picks_total{result="picked"} 1\n' in router.server.metrics_text()
        assert body_memory(router) >= 3_000_000
        plane.h2.increment_flow_control_window(4_000_000)
        plane.h2.increment_flow_control_window(4_000_000, stream)
        came = 0
        while came < 3_000_000:
            came += len(plane.until(lambda event: isinstance(event, h2.events.DataReceived)).data)
        eventually(lambda: body_memory(router) == 0, "the memory was not returned")


def test_a_call_of_which_nothing_is_read_is_reset(harness):
    router = harness.router(harness.worker(), policy="cache_aware", epp_port=0, client_write_timeout_secs=0.2)
    with RawPlane(router.server.epp_port) as plane:
        stream = plane.open()
        plane.send(stream, head(method="POST", mode=DUPLEX), LARGE)
        reset = plane.until(lambda event: isinstance(event, h2.events.StreamReset))
        assert reset.stream_id == stream
        eventually(lambda: body_memory(router) == 0, "the memory was not returned")
        router.must_rest()


def test_a_message_that_is_never_complete_ends_its_call(harness):
    router = harness.router(harness.worker(), epp_port=0, client_body_timeout_secs=0.2)
    with RawPlane(router.server.epp_port, window=65_535) as plane:
        stream = plane.open()
        plane.h2.send_data(stream, struct.pack(">BI", 0, 1000) + b"x")
        end = plane.until(lambda event: isinstance(event, h2.events.ResponseReceived))
        assert dict(end.headers)["grpc-status"] == "4"


# ---- TLS


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def with_tls(harness, authority, **options):
    files = authority.certify("127.0.0.1")
    worker = harness.worker()
    options |= {"tls_cert_path": files.cert, "tls_key_path": files.key}
    return worker, harness.router(worker, epp_port=0, epp_health_port=0, epp_tls=True, **options)


def test_a_gateway_is_served_by_tls(harness, data_plane, authority):
    worker, router = with_tls(harness, authority)
    plane = data_plane(router, ca=authority.path)
    assert {plane.pick(head()) for _ in range(3)} == {worker.authority}
    assert data_plane(router, router.server.epp_health_port).health() == "SERVING"


def test_a_gateway_without_tls_is_closed_and_counted(harness, data_plane, authority):
    _, router = with_tls(harness, authority)
    assert data_plane(router).health() == "UNAVAILABLE"
    assert re.search(r'reason="tls_handshake"\} [1-9]', router.server.metrics_text())


def test_one_that_says_nothing_to_a_port_with_tls_is_closed(harness, authority):
    _, router = with_tls(harness, authority, client_head_timeout_secs=0.2)
    with socket.create_connection(("127.0.0.1", router.server.epp_port), PATIENCE) as silent:
        while silent.recv(4096):
            pass


def test_without_the_option_the_certificate_is_for_clients_alone(harness, data_plane, authority):
    files = authority.certify("127.0.0.1")
    worker = harness.worker()
    router = harness.router(worker, epp_port=0, tls_cert_path=files.cert, tls_key_path=files.key)
    assert data_plane(router).pick(head()) == worker.authority
