"""A data plane whose workers are picked elsewhere: the streams of Envoy's filter ext_proc, by grpcio.

with DataPlane(port) as plane:
    stream = plane.stream()
    stream.send(head(path="/v1/completions"))
    assert stream.choice() == "127.0.0.1:8000"
    stream.send(response_head(200, end=True))
    stream.close()
"""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import ExternalProcessorStub
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.fakes.wire import PATIENCE

NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, DUPLEX = range(5)  # modes of bodies
DESTINATION = "x-gateway-destination-endpoint"


def _header_map(fields: Mapping[str, str]) -> HeaderMap:
    return HeaderMap(
        headers=[HeaderValue(key=key, raw_value=value.encode()) for key, value in fields.items()]
    )


def head(
    *,
    method: str = "GET",
    path: str = "/x",
    fields: Mapping[str, str] | None = None,
    mode: int = DUPLEX,
    end: bool | None = None,
    subset: Any = None,
    observability_mode: bool = False,
) -> ext_proc.ProcessingRequest:
    """The head of a request; `end`: it has no body, as a GET has none by default."""
    request = ext_proc.ProcessingRequest(
        request_headers=ext_proc.HttpHeaders(
            headers=_header_map({":method": method, ":path": path, **(fields or {})}),
            end_of_stream=method == "GET" if end is None else end,
        ),
        observability_mode=observability_mode,
    )
    request.protocol_config.request_body_mode = mode
    if subset is not None:
        hint = request.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        hint.update({f"{DESTINATION}-subset": subset})
    return request


def body(data: bytes, end: bool = True) -> ext_proc.ProcessingRequest:
    return ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=data, end_of_stream=end))


def chat(text: str, **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()


def post(
    data: bytes,
    *,
    mode: int = DUPLEX,
    path: str = "/v1/chat/completions",
    fields: Mapping[str, str] | None = None,
    subset: Any = None,
) -> tuple[ext_proc.ProcessingRequest, ext_proc.ProcessingRequest]:
    """The messages of a POST of JSON: its head and its body."""
    named = {"content-type": "application/json", "content-length": str(len(data)), **(fields or {})}
    return head(method="POST", path=path, fields=named, mode=mode, subset=subset), body(data)


def response_head(
    status: int = 200, end: bool = False, served: str = "", fields: Mapping[str, str] | None = None
) -> ext_proc.ProcessingRequest:
    request = ext_proc.ProcessingRequest(
        response_headers=ext_proc.HttpHeaders(
            headers=_header_map({":status": str(status), **(fields or {})}), end_of_stream=end
        )
    )
    if served:
        request.metadata_context.filter_metadata["envoy.lb"].update({f"{DESTINATION}-served": served})
    return request


def response_body(data: bytes, end: bool = True) -> ext_proc.ProcessingRequest:
    return ext_proc.ProcessingRequest(response_body=ext_proc.HttpBody(body=data, end_of_stream=end))


class Stream:
    """The stream of one request."""

    def __init__(self, stub: ExternalProcessorStub) -> None:
        self._requests: queue.SimpleQueue[ext_proc.ProcessingRequest | None] = queue.SimpleQueue()
        self._call = stub.Process(iter(self._requests.get, None), timeout=PATIENCE)
        self._choice: str | None = None

    def send(self, *requests: ext_proc.ProcessingRequest) -> None:
        for request in requests:
            self._requests.put(request)

    def receive(self) -> ext_proc.ProcessingResponse:
        return next(self._call)

    def choice(self) -> str:
        """The endpoint of the response that has one, and no other."""
        (chosen,) = self.choices()
        return chosen

    def choices(self) -> list[str]:
        """The endpoints of the response that has them, which names them twice: in the order of attempts."""
        response = self.receive()
        kind = response.WhichOneof("response")
        assert kind in ("request_headers", "request_body"), response
        common = getattr(response, kind).response
        fields = {
            option.header.key: option.header.raw_value.decode()
            for option in common.header_mutation.set_headers
        }
        assert response.dynamic_metadata["envoy.lb"][DESTINATION] == fields[DESTINATION]
        assert common.clear_route_cache
        return fields[DESTINATION].split(",")

    def rejection(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a response to the client instead of a choice."""
        response = self.receive()
        assert response.WhichOneof("response") == "immediate_response", response
        said = response.immediate_response
        fields = {option.header.key: option.header.raw_value.decode() for option in said.headers.set_headers}
        return said.status.code, fields, said.body

    def close(self) -> None:
        """Half-closes it, and reads the rest."""
        self._requests.put(None)
        for _ in self._call:
            pass
        assert self._call.code() == grpc.StatusCode.OK

    def cancel(self) -> None:
        self._call.cancel()
        self._requests.put(None)

    def failure(self) -> tuple[grpc.StatusCode, str]:
        """How it ended, other than well."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError as error:
            self._requests.put(None)
            return error.code(), error.details()
        raise AssertionError("the stream ended well")


class DataPlane:
    """`ca`: the path of the certificate by which the picker's is checked; without one there is no TLS."""

    def __init__(self, port: int, ca: str | None = None) -> None:
        place, options = f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]
        if ca is None:
            self._channel = grpc.insecure_channel(place, options)
        else:
            trusted = grpc.ssl_channel_credentials(Path(ca).read_bytes())
            self._channel = grpc.secure_channel(place, trusted, options)
        self._picker = ExternalProcessorStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def stream(self) -> Stream:
        return Stream(self._picker)

    def health(self, service: str = "") -> str:
        """What the health service says, or the code of its error."""
        try:
            reply = self._health.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)
        except grpc.RpcError as error:
            return error.code().name
        return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)

    def pick(self, *messages: ext_proc.ProcessingRequest) -> str:
        """Where a request goes, which is served at once."""
        stream = self.stream()
        stream.send(*messages)
        chosen = stream.choice()
        stream.send(response_head(end=True))
        stream.close()
        return chosen

    def __enter__(self) -> DataPlane:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()


def planes(harness: Any) -> Iterator[Any]:
    """For a fixture: opens data planes, which are closed when the test is over."""
    opened: list[DataPlane] = []

    def open_one(router: Any, port: int | None = None, ca: str | None = None) -> DataPlane:
        with harness.keeping_descriptors():  # grpcio keeps some for the process
            opened.append(DataPlane(router.server.epp_port if port is None else port, ca))
            opened[-1].health()
        return opened[-1]

    yield open_one
    for plane in opened:
        plane.__exit__()
