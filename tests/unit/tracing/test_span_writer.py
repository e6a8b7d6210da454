"""cpp/tracing/span_writer.h, read by OpenTelemetry's own definitions."""

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.fakes.collector import attributes_of, spans_in
from tests.rows import for_each_row
from vllm_router import _core_testing as testing

LIMIT = testing.MAX_SPAN_VALUE_BYTES


def one(**fields):
    (span,) = spans_in(testing.write_span(**fields))
    return span


def test_a_span_has_all_that_was_given():
    span = one(
        trace=(0x0102030405060708, 0x090A0B0C0D0E0F10, 0x1112131415161718, True),
        parent=0x2122232425262728,
        remote=True,
        state="a=b",
        kind=2,
        name="POST /v1/completions",
        begin_ns=1_700_000_000_000_000_001,
        end_ns=1_700_000_000_000_000_009,
        attributes=[("text", "t"), ("count", -1), ("real", 0.5), ("on", True), ("off", False), ("none", "")],
        events=[("first_byte", 7)],
        failed=True,
    )
    assert span.trace_id == bytes(range(1, 17))
    assert span.span_id == bytes(range(0x11, 0x19))
    assert span.parent_span_id == bytes(range(0x21, 0x29))
    assert (span.trace_state, span.name, span.kind) == ("a=b", "POST /v1/completions", Span.SPAN_KIND_SERVER)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (
        1_700_000_000_000_000_001,
        1_700_000_000_000_000_009,
    )
    assert attributes_of(span) == {"text": "t", "count": -1, "real": 0.5, "on": True, "off": False}
    assert [(event.name, event.time_unix_nano) for event in span.events] == [("first_byte", 7)]
    assert (span.status.code, span.flags, span.dropped_attributes_count) == (
        Status.STATUS_CODE_ERROR,
        0x301,
        0,
    )


def test_a_root_has_no_parent_and_no_status_unless_it_failed():
    span = one()
    assert (span.parent_span_id, span.status.code, span.flags) == (b"", Status.STATUS_CODE_UNSET, 0x101)
    assert not span.HasField("status")


def test_a_span_does_not_end_before_it_begins():
    assert one(begin_ns=5, end_ns=3).end_time_unix_nano == 5


@given(st.binary(max_size=400))
def test_values_are_cut_and_always_text(data):
    span = one(attributes=[("key", data.decode("utf-8", "surrogateescape").encode("utf-8", "replace"))])
    assert sum(map(len, attributes_of(span).values())) <= LIMIT


def test_a_value_is_cut_at_the_end_of_a_character():
    assert attributes_of(one(attributes=[("k", "x" + "€" * 200)])) == {"k": "x" + "€" * ((LIMIT - 1) // 3)}


ASCII = st.text(st.characters(codec="ascii"), min_size=1, max_size=140)
VALUES = st.one_of(
    st.text(min_size=1, max_size=LIMIT // 4), ASCII, st.integers(-(2**63), 2**63 - 1), st.booleans(),
    st.floats(allow_nan=False),
)  # fmt: skip


@given(st.dictionaries(ASCII, VALUES, max_size=3))
def test_attributes_are_what_was_given_whatever_their_lengths(attributes):
    assert attributes_of(one(attributes=list(attributes.items()))) == attributes


@for_each_row(
    "size", [1, 113, 114, 115, 116, 117, 120, 121, 122, 123, 124, 125, 126, 127, 128, LIMIT, LIMIT + 1]
)
def test_lengths_of_one_byte_and_of_two_are_right(size):
    given_ = {"k": "x" * size, "other": 1}
    assert attributes_of(one(attributes=list(given_.items()))) == given_ | {"k": "x" * min(size, LIMIT)}


def test_attributes_beyond_the_size_of_a_span_are_counted():
    given_ = [(f"key{i}", "x" * 250) for i in range(20)]
    data = testing.write_span(attributes=given_, failed=True)
    assert len(data) <= testing.MAX_SPAN_BYTES + 4
    (span,) = spans_in(data)
    kept = attributes_of(span)
    assert dict(given_[: len(kept)]) == kept
    assert span.dropped_attributes_count == len(given_) - len(kept) > 0
    assert span.status.code == Status.STATUS_CODE_ERROR


def test_a_request_to_a_collector_names_the_service_and_the_scope():
    spans = testing.write_span(name="a") + testing.write_span(name="b")
    resource = [("service.name", "x"), ("service.name", "y"), ("zone", "z")]
    export = ExportTraceServiceRequest.FromString(testing.export_request(resource, "router", "1.2", spans))
    (resource_spans,) = export.resource_spans
    assert attributes_of(resource_spans.resource) == {"service.name": "x", "zone": "z"}
    (scope_spans,) = resource_spans.scope_spans
    assert (scope_spans.scope.name, scope_spans.scope.version) == ("router", "1.2")
    assert [span.name for span in scope_spans.spans] == ["a", "b"]


@for_each_row("count", [0, 1, 2, 3, 4, 40, 400])
def test_a_request_has_as_many_spans_as_follow_its_beginning(count):
    spans = testing.write_span(name="a" * 20) * count
    export = ExportTraceServiceRequest.FromString(testing.export_request([("a", "b")], "router", "1", spans))
    assert [span.name for span in export.resource_spans[0].scope_spans[0].spans] == ["a" * 20] * count
    assert attributes_of(export.resource_spans[0].resource) == {"a": "b"}


def test_a_collector_s_response_is_read():
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = 3
    partial.partial_success.error_message = "too old"
    assert testing.parse_export_response(partial.SerializeToString()) == (3, b"too old")
    assert testing.parse_export_response(b"") == (0, b"")
    assert testing.parse_export_response(b"\x0a\x05") is None
    assert testing.parse_export_response(b"\x0a\x02\x08\x80") is None
