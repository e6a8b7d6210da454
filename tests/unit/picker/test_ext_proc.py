"""cpp/picker/ext_proc.h against the official classes, which xds-protos has."""

import pytest
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue, HeaderValueOption, Metadata
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.type.v3.http_status_pb2 import HttpStatus
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

HEADER_PARTS = ["request_headers", "response_headers"]
BODY_PARTS = ["request_body", "response_body"]
TRAILER_PARTS = ["request_trailers", "response_trailers"]
PARTS = HEADER_PARTS + BODY_PARTS + TRAILER_PARTS

TEXTS = st.text(max_size=20)
BYTES = st.binary(max_size=40)
# No field of a message here has such a number.
UNKNOWN = st.lists(
    st.one_of(
        st.tuples(st.just("varint"), st.integers(100, 2**29 - 1), st.integers(0, 2**64 - 1)),
        st.tuples(st.just("fixed32"), st.integers(100, 2**29 - 1), st.integers(0, 2**32 - 1)),
        st.tuples(st.just("fixed64"), st.integers(100, 2**29 - 1), st.integers(0, 2**64 - 1)),
        st.tuples(st.just("text"), st.integers(100, 2**29 - 1), TEXTS),
    ),
    max_size=2,
)


@st.composite
def extended(draw, messages):
    """A message as a newer version may have it, with fields that are not known."""
    message = draw(messages)
    message.MergeFromString(testing.proto_write(draw(UNKNOWN)))
    return message


VALUES = st.recursive(
    st.one_of(
        st.just(Value(null_value=0)),
        st.builds(lambda number: Value(number_value=number), st.floats(allow_nan=False)),
        st.builds(lambda text: Value(string_value=text), TEXTS),
        st.builds(lambda truth: Value(bool_value=truth), st.booleans()),
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda fields: Value(struct_value=Struct(fields=fields)),
            st.dictionaries(TEXTS, inner, max_size=3),
        ),
        st.builds(lambda values: Value(list_value=ListValue(values=values)), st.lists(inner, max_size=3)),
    ),
    max_leaves=6,
)
STRUCTS = st.builds(
    lambda fields: Struct(fields=fields), st.dictionaries(TEXTS, extended(VALUES), max_size=3)
)
HEADERS = extended(
    st.one_of(
        st.builds(lambda key, raw: HeaderValue(key=key, raw_value=raw), TEXTS, BYTES),
        st.builds(lambda key, value: HeaderValue(key=key, value=value), TEXTS, TEXTS),
    )
)
HEADER_MAPS = extended(st.builds(lambda headers: HeaderMap(headers=headers), st.lists(HEADERS, max_size=4)))
METADATA = extended(
    st.builds(
        lambda structs: Metadata(filter_metadata=structs),
        st.dictionaries(TEXTS, extended(STRUCTS), max_size=3),
    )
)
MODES = st.integers(0, 5)
PROTOCOLS = extended(
    st.builds(
        lambda request, response, early: ext_proc.ProtocolConfiguration(
            request_body_mode=request,
            response_body_mode=response,
            send_body_without_waiting_for_header_response=early,
        ),
        MODES,
        MODES,
        st.booleans(),
    )
)
CONTENTS = {
    "headers": extended(
        st.builds(
            lambda headers, end: ext_proc.HttpHeaders(headers=headers, end_of_stream=end),
            HEADER_MAPS,
            st.booleans(),
        )
    ),
    "body": extended(
        st.builds(
            lambda body, end, without: ext_proc.HttpBody(
                body=body, end_of_stream=end, end_of_stream_without_message=without
            ),
            BYTES,
            st.booleans(),
            st.booleans(),
        )
    ),
    "trailers": extended(st.builds(lambda trailers: ext_proc.HttpTrailers(trailers=trailers), HEADER_MAPS)),
}


@st.composite
def requests(draw):
    request = ext_proc.ProcessingRequest(observability_mode=draw(st.booleans()))
    part = draw(st.sampled_from([None, *PARTS]))
    if part is not None:
        getattr(request, part).CopyFrom(draw(CONTENTS[part.split("_")[1]]))
    if draw(st.booleans()):
        request.metadata_context.CopyFrom(draw(METADATA))
    for name, struct in draw(st.dictionaries(TEXTS, STRUCTS, max_size=2)).items():
        request.attributes[name].CopyFrom(struct)
    if draw(st.booleans()):
        request.protocol_config.CopyFrom(draw(PROTOCOLS))
    request.MergeFromString(testing.proto_write(draw(UNKNOWN)))
    return request


def fields_of(headers):
    return [(header.key.encode(), header.raw_value or header.value.encode()) for header in headers]


def plain(request):
    """What read_processing_request returns of it, but Structs are of the official class."""
    part = request.WhichOneof("request")
    content = getattr(request, part) if part else None
    fields, body, end = [], b"", False
    if part in HEADER_PARTS:
        fields, end = fields_of(content.headers.headers), content.end_of_stream
    elif part in TRAILER_PARTS:
        fields = fields_of(content.trailers.headers)
    elif part in BODY_PARTS:
        body, end = content.body, content.end_of_stream or content.end_of_stream_without_message
    config = request.protocol_config
    return {
        "part": part or "none",
        "fields": fields,
        "body": body,
        "end_of_stream": end,
        "metadata": dict(request.metadata_context.filter_metadata),
        "attributes": dict(request.attributes),
        "observability_mode": request.observability_mode,
        "protocol": (
            config.request_body_mode,
            config.response_body_mode,
            config.send_body_without_waiting_for_header_response,
        )
        if request.HasField("protocol_config")
        else None,
    }


def read(data):
    request, problem = testing.read_processing_request(data)
    assert problem == ""
    for kind in ("metadata", "attributes"):
        request[kind] = {name.decode(): Struct.FromString(struct) for name, struct in request[kind]}
    return request


@given(requests())
def test_a_request_is_read_as_the_official_class_reads_it(request):
    assert read(request.SerializeToString()) == plain(request)


def test_a_request_as_envoy_sends_it():
    request = ext_proc.ProcessingRequest(
        request_headers=ext_proc.HttpHeaders(
            headers=HeaderMap(
                headers=[
                    HeaderValue(key=":method", raw_value=b"POST"),
                    HeaderValue(key=":path", raw_value=b"/v1/completions"),
                ]
            )
        ),
        protocol_config=ext_proc.ProtocolConfiguration(request_body_mode=ProcessingMode.FULL_DUPLEX_STREAMED),
    )
    request.metadata_context.filter_metadata["envoy.lb.subset_hint"].update({"key": ["10.0.0.1:8000"]})
    assert read(request.SerializeToString()) == {
        "part": "request_headers",
        "fields": [(b":method", b"POST"), (b":path", b"/v1/completions")],
        "body": b"",
        "end_of_stream": False,
        "metadata": {
            "envoy.lb.subset_hint": request.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        },
        "attributes": {},
        "observability_mode": False,
        "protocol": (4, 0, False),
    }


@given(requests())
def test_a_cut_message_does_no_harm(request):
    data = request.SerializeToString()
    for end in range(len(data)):
        read_one, problem = testing.read_processing_request(data[:end])
        try:
            official = ext_proc.ProcessingRequest.FromString(data[:end])
        except Exception:
            continue
        # What the official class takes, this takes as well.
        assert problem == ""
        assert read_one["part"] == (official.WhichOneof("request") or "none")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_to_an_end(data):
    request, problem = testing.read_processing_request(data)
    assert (request is None) == (problem != "")
    assert problem == "" or problem.startswith("INVALID_ARGUMENT: ")


def test_of_parts_the_last_is_taken():
    first = ext_proc.ProcessingRequest(
        request_headers=ext_proc.HttpHeaders(
            headers=HeaderMap(headers=[HeaderValue(key="a", raw_value=b"b")]), end_of_stream=True
        )
    )
    second = ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=b"c"))
    data = first.SerializeToString() + second.SerializeToString()
    assert read(data) == plain(ext_proc.ProcessingRequest.FromString(data)) == plain(second)


def test_a_field_of_another_wire_type_is_unknown():
    data = testing.proto_write([("varint", 2, 1), ("varint", 8, 1), ("text", 10, "x"), ("fixed32", 11, 1)])
    assert read(data) == plain(ext_proc.ProcessingRequest())


def test_a_mode_that_is_not_known_is_none():
    protocol = [("varint", 1, 6), ("varint", 2, 2**64 - 1), ("varint", 3, 1)]
    assert read(testing.proto_write([("message", 11, protocol)]))["protocol"] == (0, 0, True)


@pytest.mark.parametrize(
    ("field", "what"),
    [
        (("text", 2, "\x0a\x09"), "a part with headers"),
        (("message", 2, [("text", 1, "\x0a\x09")]), "a map of headers"),
        (("message", 7, [("message", 1, [("text", 1, "\x0a\x09")])]), "a header"),
        (("text", 4, "\x0a\x09"), "a piece of a body"),
        (("text", 8, "\x0a\x09"), "metadata_context"),
        (("message", 8, [("text", 1, "\x0a\x09")]), "an entry of the namespaces of metadata"),
        (("text", 9, "\x0a\x09"), "an entry of the attributes"),
        (("text", 11, "\x08"), "protocol_config"),
    ],
    ids=["headers", "map", "header", "body", "metadata", "namespace", "attributes", "protocol"],
)
def test_what_is_malformed_is_named(field, what):
    request, problem = testing.read_processing_request(testing.proto_write([field]))
    assert request is None
    assert problem.startswith(f"INVALID_ARGUMENT: {what} of a ProcessingRequest is malformed")


def test_a_request_that_failed_leaves_nothing_to_the_next():
    bad = testing.proto_write(
        [("message", 2, [("message", 1, [("message", 1, [("text", 1, "a")])])]), ("text", 11, "\x08")]
    )
    assert testing.read_processing_request(bad)[0] is None
    assert read(b"") == plain(ext_proc.ProcessingRequest())


def headers_request(count):
    return ext_proc.ProcessingRequest(
        request_headers=ext_proc.HttpHeaders(
            headers=HeaderMap(headers=[HeaderValue(key=f"x-{i}") for i in range(count)])
        )
    ).SerializeToString()


def test_a_message_has_at_most_256_headers():
    assert len(read(headers_request(256))["fields"]) == 256
    assert testing.read_processing_request(headers_request(257)) == (
        None,
        "RESOURCE_EXHAUSTED: a ProcessingRequest has more than 256 headers; send fewer",
    )


def test_a_message_has_at_most_64_namespaces_and_64_attributes():
    def request(namespaces, attributes):
        message = ext_proc.ProcessingRequest()
        for i in range(namespaces):
            message.metadata_context.filter_metadata[f"n{i}"].update({})
        for i in range(attributes):
            message.attributes[f"a{i}"].update({})
        return message.SerializeToString()

    both = read(request(64, 64))
    assert (len(both["metadata"]), len(both["attributes"])) == (64, 64)
    _, problem = testing.read_processing_request(request(65, 0))
    assert (
        problem
        == "RESOURCE_EXHAUSTED: a ProcessingRequest has more than 64 namespaces of metadata; send fewer"
    )
    _, problem = testing.read_processing_request(request(0, 65))
    assert problem == "RESOURCE_EXHAUSTED: a ProcessingRequest has more than 64 attributes; send fewer"


def plain_value(value):
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return ("null", None)
    content = getattr(value, kind)
    if kind == "string_value":
        content = content.encode()
    elif kind in ("struct_value", "list_value"):
        content = content.SerializeToString(deterministic=True)
    return (kind.removesuffix("_value"), content)


def canonical(found):
    """With a Struct or a list as the official class writes it."""
    if found is not None and found[0] in ("struct", "list"):
        official = Struct if found[0] == "struct" else ListValue
        return (found[0], official.FromString(found[1]).SerializeToString(deterministic=True))
    return found


@given(STRUCTS, TEXTS)
def test_a_value_is_found_by_its_key(struct, other):
    data = struct.SerializeToString()
    for key, value in struct.fields.items():
        assert canonical(testing.find_metadata(data, key.encode())) == plain_value(value)
    if other not in struct.fields:
        assert testing.find_metadata(data, other.encode()) is None


def test_of_equal_keys_the_last_is_taken():
    def entry(text):
        return ("message", 1, [("text", 1, "key"), ("message", 2, [("text", 3, text)])])

    data = testing.proto_write([entry("first"), entry("second")])
    assert testing.find_metadata(data, b"key") == ("string", b"second")


@pytest.mark.parametrize(
    "fields",
    [
        [("text", 1, "\x0a\x09")],
        [("message", 1, [("text", 1, "key"), ("text", 2, "\x0a\x09")])],
        [("message", 1, [("text", 1, "key"), ("message", 2, [("text", 3, "x")])]), ("text", 1, "\x0a\x09")],
    ],
    ids=["entry", "value", "behind it"],
)
def test_nothing_is_found_in_a_malformed_struct(fields):
    assert testing.find_metadata(testing.proto_write(fields), b"key") is None


@given(st.lists(extended(VALUES), max_size=6))
def test_strings_of_a_list_are_read(values):
    texts, problem = testing.read_strings(ListValue(values=values).SerializeToString())
    assert problem == ""
    assert texts == [
        value.string_value.encode() for value in values if value.WhichOneof("kind") == "string_value"
    ]


def test_a_list_has_at_most_16384_values():
    longest = testing.proto_write([("message", 1, [("text", 3, "x")])] * 16_384)
    assert testing.read_strings(longest) == ([b"x"] * 16_384, "")
    _, problem = testing.read_strings(longest + testing.proto_write([("message", 1, [])]))
    assert problem.startswith("RESOURCE_EXHAUSTED: ")
    assert "more than 16384 values of one list" in problem


def test_a_malformed_list_is_told():
    for fields in ([("text", 1, "\x0a\x09")], [("message", 1, [("text", 6, "x")]), ("text", 1, "\x08")]):
        _, problem = testing.read_strings(testing.proto_write(fields))
        assert problem.startswith("INVALID_ARGUMENT: a value of a list")


NAMES = st.text("abcxyz-", min_size=1, max_size=12)
SET_HEADERS = st.lists(st.tuples(NAMES, BYTES), max_size=3)


def mutation_of(set_headers, remove_headers):
    return ext_proc.HeaderMutation(
        set_headers=[
            HeaderValueOption(
                header=HeaderValue(key=name, raw_value=value),
                append_action=HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
            )
            for name, value in set_headers
        ],
        remove_headers=remove_headers,
    )


@st.composite
def modes(draw):
    headers, bodies = st.integers(0, 2), st.integers(0, 5)
    return tuple(draw(kind) for kind in (headers, bodies, bodies, headers, headers))


@given(
    st.sampled_from(PARTS),
    SET_HEADERS,
    st.lists(NAMES, max_size=2),
    st.booleans(),
    st.lists(
        st.tuples(
            NAMES,
            TEXTS,
            st.lists(st.tuples(TEXTS, st.floats(allow_nan=False)), unique_by=lambda pair: pair[0]),
        ),
        max_size=3,
        unique_by=lambda field: field[0],
    ),
    st.none() | modes(),
)
def test_a_response_is_what_the_official_class_writes(
    part, set_headers, remove_headers, clear_route_cache, metadata, mode_override
):
    written = testing.write_processing_response(
        part,
        set_headers=set_headers,
        remove_headers=remove_headers,
        clear_route_cache=clear_route_cache,
        metadata_namespace="envoy.lb",
        metadata=metadata,
        mode_override=mode_override,
    )
    expected = ext_proc.ProcessingResponse()
    content = getattr(expected, part)
    content.SetInParent()
    if part in TRAILER_PARTS:
        if set_headers or remove_headers:
            content.header_mutation.CopyFrom(mutation_of(set_headers, remove_headers))
    else:
        if set_headers or remove_headers:
            content.response.header_mutation.CopyFrom(mutation_of(set_headers, remove_headers))
        if clear_route_cache:
            content.response.clear_route_cache = True
    if metadata:
        fields = {
            key: Value(struct_value=Struct(fields={name: Value(number_value=x) for name, x in numbers}))
            if numbers
            else Value(string_value=text)
            for key, text, numbers in metadata
        }
        expected.dynamic_metadata.fields["envoy.lb"].struct_value.CopyFrom(Struct(fields=fields))
    if mode_override is not None:
        response_headers, request_body, response_body, request_trailers, response_trailers = mode_override
        expected.mode_override.CopyFrom(
            ProcessingMode(
                response_header_mode=response_headers,
                request_body_mode=request_body,
                response_body_mode=response_body,
                request_trailer_mode=request_trailers,
                response_trailer_mode=response_trailers,
            )
        )
    assert ext_proc.ProcessingResponse.FromString(written) == expected


def test_a_response_may_change_nothing():
    written = testing.write_processing_response("response_headers")
    response = ext_proc.ProcessingResponse.FromString(written)
    assert response.WhichOneof("response") == "response_headers"
    assert not response.response_headers.HasField("response")


# Lengths about those where a length takes a byte more.
@pytest.mark.parametrize("part", BODY_PARTS)
@pytest.mark.parametrize("end", [False, True], ids=["more", "end"])
def test_a_piece_of_a_body_is_what_the_official_class_reads(part, end):
    sizes = [0, 1, *range(110, 130), *range(16_366, 16_386), 62_000, 2**21 - 8, 2**21]
    for size in sizes:
        body = b"\xff" * size
        streamed = ext_proc.StreamedBodyResponse(body=body, end_of_stream=end)
        mutation = ext_proc.BodyMutation(streamed_response=streamed)
        content = ext_proc.BodyResponse(response=ext_proc.CommonResponse(body_mutation=mutation))
        written = testing.write_streamed_body(part, body, end)
        assert ext_proc.ProcessingResponse.FromString(written) == ext_proc.ProcessingResponse(
            **{part: content}
        )


@pytest.mark.parametrize("milliseconds", [1, 999, 1000, 1001, 61_500])
def test_more_time_is_a_duration(milliseconds):
    duration = Duration()
    duration.FromMilliseconds(milliseconds)
    written = testing.write_timeout_override(milliseconds)
    assert ext_proc.ProcessingResponse.FromString(written) == ext_proc.ProcessingResponse(
        override_message_timeout=duration
    )


@given(st.sampled_from([429, 503]), SET_HEADERS, BYTES, TEXTS)
def test_an_immediate_response_is_what_the_official_class_writes(status, headers, body, details):
    written = testing.write_immediate_response(status, headers=headers, body=body, details=details)
    immediate = ext_proc.ImmediateResponse(status=HttpStatus(code=status), body=body, details=details)
    if headers:
        immediate.headers.CopyFrom(mutation_of(headers, []))
    expected = ext_proc.ProcessingResponse(immediate_response=immediate)
    assert ext_proc.ProcessingResponse.FromString(written) == expected


def test_texts_that_are_no_utf8_do_not_spoil_a_response():
    written = testing.write_immediate_response(503, details=b"a\xffb")
    response = ext_proc.ProcessingResponse.FromString(written)
    assert response.immediate_response.details == "a\N{REPLACEMENT CHARACTER}b"
