"""A collector of OpenTelemetry: takes OTLP over HTTP and keeps it, decoded by its own definitions.

collector = Collector(harness)
router = harness.router(worker, enable_trace=True, otlp_traces_endpoint=collector.url)
server, client = collector.wait_for(2)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from tests.fakes.harness import Harness
from tests.fakes.wire import Message, eventually, response

SERVER, CLIENT, INTERNAL = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_INTERNAL


def value_of(value: Any) -> Any:
    """An AnyValue as Python has it."""
    return getattr(value, value.WhichOneof("value"))


def attributes_of(message: Any) -> dict[str, Any]:
    """Attributes by key, none of which comes twice."""
    found = {each.key: value_of(each.value) for each in message.attributes}
    assert len(found) == len(message.attributes)
    return found


def spans_in(fields: bytes) -> list[Span]:
    """Spans that SpanWriter has written."""
    return list(ScopeSpans.FromString(fields).spans)


class Collector:
    """`respond(connection, message)` replaces the response, which is 200 and takes all."""

    def __init__(self, harness: Harness, respond: Callable[[Any, Message], None] | None = None) -> None:
        self.messages: list[Message] = []
        self.exports: list[ExportTraceServiceRequest] = []
        self._lock = threading.Lock()
        self._respond = respond
        self.worker = harness.worker(self._take)
        self.url = self.worker.url

    def _take(self, connection: Any, message: Message) -> None:
        with self._lock:
            self.messages.append(message)
            self.exports.append(ExportTraceServiceRequest.FromString(message.body))
        if self._respond is not None:
            self._respond(connection, message)
            return
        body = ExportTraceServiceResponse().SerializeToString()
        connection.send(response(200, body, ("Content-Type", "application/x-protobuf")))

    @property
    def spans(self) -> list[Span]:
        """All spans, in the order in which they came."""
        with self._lock:
            return [
                span
                for export in self.exports
                for resource in export.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]

    def wait_for(self, count: int) -> list[Span]:
        """The spans, once there are so many; more are a mistake."""
        eventually(lambda: len(self.spans) >= count, f"{count} spans never came")
        assert len(self.spans) == count
        return self.spans
