"""cpp/picker/ext_proc_stream.h: one request in each body mode, as scripts of official messages."""

import pytest
from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, DUPLEX, GRPC = range(6)
DESTINATION = "x-gateway-destination-endpoint"
HEAD = {":method": "POST", ":path": "/v1/completions", "x-session-id": "7"}
PIECE = 62_000


def header_map(fields):
    return HeaderMap(
        headers=[HeaderValue(key=key, raw_value=value.encode()) for key, value in fields.items()]
    )


def headers(mode=DUPLEX, response_mode=NONE, end=False, fields=HEAD, subset=None, observability_mode=False):
    request = ext_proc.ProcessingRequest(
        request_headers=ext_proc.HttpHeaders(headers=header_map(fields), end_of_stream=end),
        observability_mode=observability_mode,
    )
    if mode is not None:
        request.protocol_config.request_body_mode = mode
        request.protocol_config.response_body_mode = response_mode
        request.protocol_config.SetInParent()
    if subset is not None:
        request.metadata_context.filter_metadata["envoy.lb.subset_hint"].update(
            {f"{DESTINATION}-subset": subset}
        )
    return request


def body(data, end=False):
    return ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=data, end_of_stream=end))


def trailers():
    return ext_proc.ProcessingRequest(request_trailers=ext_proc.HttpTrailers())


def response_headers(status="200", end=False):
    return ext_proc.ProcessingRequest(
        response_headers=ext_proc.HttpHeaders(headers=header_map({":status": status}), end_of_stream=end)
    )


def response_body(data, end=False):
    return ext_proc.ProcessingRequest(response_body=ext_proc.HttpBody(body=data, end_of_stream=end))


def response_trailers():
    return ext_proc.ProcessingRequest(response_trailers=ext_proc.HttpTrailers())


class Stream:
    def __init__(self, **options):
        self.ours = testing.ExtProcStream(**options)

    def take(self, request):
        return self.ours.take(request.SerializeToString())

    def sent(self):
        return [ext_proc.ProcessingResponse.FromString(message) for message in self.ours.take_messages()]


def empty(part):
    """A response that changes nothing."""
    response = ext_proc.ProcessingResponse()
    getattr(response, part).SetInParent()
    return response


def assert_choice(response, part, endpoints):
    assert response.WhichOneof("response") == part
    common = getattr(response, part).response
    (option,) = common.header_mutation.set_headers
    assert (option.header.key, option.header.raw_value) == (DESTINATION, endpoints.encode())
    assert option.append_action == 2
    assert common.clear_route_cache
    metadata = Struct()
    metadata.update({"envoy.lb": {DESTINATION: endpoints}})
    assert response.dynamic_metadata == metadata


def pieces(responses, part="request_body"):
    """Bytes that are sent back, and whether they end."""
    streamed = []
    for response in responses:
        assert response.WhichOneof("response") == part
        streamed.append(getattr(response, part).response.body_mutation.streamed_response)
        assert len(streamed[-1].body) <= PIECE
    assert not any(piece.end_of_stream for piece in streamed[:-1])
    return b"".join(piece.body for piece in streamed), bool(streamed) and streamed[-1].end_of_stream


def test_a_head_is_kept_and_what_it_says():
    stream = Stream()
    assert stream.take(headers(subset=["10.0.0.1:8000"])) == "request"
    assert stream.ours.head == [(key.encode(), value.encode()) for key, value in HEAD.items()]
    assert stream.ours.subset_contains("10.0.0.1", 8000) is True
    assert stream.ours.subset_contains("10.0.0.2", 8000) is False
    stream = Stream()
    stream.take(headers())
    assert stream.ours.subset_contains("10.0.0.1", 8000) is None


@pytest.mark.parametrize("mode", range(6))
def test_a_request_without_a_body_is_picked_at_once(mode):
    stream = Stream()
    assert stream.take(headers(mode, end=True)) == "request"
    assert (stream.ours.may_pick, stream.ours.must_pick, stream.sent()) == (True, True, [])
    stream.ours.choose(["10.0.0.1:8000"])
    response, *rest = stream.sent()
    assert_choice(response, "request_headers", "10.0.0.1:8000")
    assert rest == []
    assert not stream.ours.may_pick


@pytest.mark.parametrize("mode", [NONE, STREAMED, GRPC])
def test_modes_that_send_no_body_before_the_choice_are_picked_on_the_head(mode):
    stream = Stream()
    stream.take(headers(mode))
    assert stream.ours.must_pick
    stream.ours.choose(["10.0.0.1:8000"])
    (response,) = stream.sent()
    assert_choice(response, "request_headers", "10.0.0.1:8000")
    for data, end in ((b"a", False), (b"b", True)):
        assert stream.take(body(data, end)) == "nothing"
        assert stream.sent() == [empty("request_body")]


def test_a_body_that_comes_early_has_its_responses_behind_the_choice():
    stream = Stream()
    stream.take(headers(STREAMED))
    assert stream.take(body(b"a")) == "request"
    assert stream.take(body(b"b", end=True)) == "request"
    assert stream.take(trailers()) == "request"
    assert stream.sent() == []
    stream.ours.choose(["10.0.0.1:8000"])
    response, *rest = stream.sent()
    assert_choice(response, "request_headers", "10.0.0.1:8000")
    assert rest == [empty("request_body"), empty("request_body"), empty("request_trailers")]


@pytest.mark.parametrize(
    ("mode", "end"), [(BUFFERED, True), (BUFFERED_PARTIAL, False)], ids=["whole", "partial"]
)
def test_a_buffered_body_has_the_choice_in_its_response(mode, end):
    stream = Stream()
    stream.take(headers(mode))
    assert (stream.ours.may_pick, stream.ours.must_pick) == (False, False)
    assert stream.sent() == [empty("request_headers")]  # before which the body would not come
    assert stream.take(body(b"hello", end)) == "request"
    assert (stream.ours.body, stream.ours.body_is_whole) == (b"hello", end)
    assert stream.ours.must_pick
    stream.ours.choose(["10.0.0.1:8000"])
    (response,) = stream.sent()
    assert_choice(response, "request_body", "10.0.0.1:8000")
    assert stream.take(trailers()) == "nothing"
    assert stream.sent() == [empty("request_trailers")]


def test_a_body_is_picked_on_as_soon_as_the_owner_wants_and_sent_back_whole():
    stream = Stream()
    stream.take(headers())
    assert (stream.ours.may_pick, stream.ours.must_pick) == (True, False)
    stream.take(body(b"a" * 5000))
    assert (stream.ours.body, stream.sent(), stream.ours.must_pick) == (b"a" * 5000, [], False)
    stream.ours.choose(["10.0.0.1:8000", "10.0.0.2:8000"])
    response, *rest = stream.sent()
    assert_choice(response, "request_headers", "10.0.0.1:8000,10.0.0.2:8000")
    assert pieces(rest) == (b"a" * 5000, False)
    assert stream.ours.body == b""
    assert stream.take(body(b"b")) == "nothing"
    assert pieces(stream.sent()) == (b"b", False)
    assert stream.take(body(b"", end=True)) == "nothing"
    assert pieces(stream.sent()) == (b"", True)


@given(st.lists(st.integers(0, 3 * PIECE), max_size=5), st.integers(0, 5), st.booleans())
def test_all_bytes_are_sent_back_in_small_pieces(sizes, pick_after, by_trailers):
    stream = Stream(max_body_bytes=1 << 24)
    stream.take(headers())
    sent = []
    for number, size in enumerate([*sizes, 7]):
        if number == pick_after:
            stream.ours.choose(["a:1"])
        last = number == len(sizes)
        stream.take(body(bytes([number]) * size, end=last and not by_trailers))
        sent += stream.sent()
    if by_trailers:
        stream.take(trailers())
    if pick_after > len(sizes):
        assert sent == []
        assert stream.ours.must_pick
        stream.ours.choose(["a:1"])
    first, *rest = sent + stream.sent()
    assert_choice(first, "request_headers", "a:1")
    if by_trailers:
        assert rest.pop() == empty("request_trailers")
    expected = b"".join(bytes([number]) * size for number, size in enumerate([*sizes, 7]))
    assert pieces(rest) == (expected, not by_trailers)


def test_without_a_protocol_the_assumed_mode_counts():
    stream = Stream()
    stream.take(headers(mode=None))
    assert (stream.ours.may_pick, stream.ours.must_pick) == (True, False)
    stream = Stream(assumed_mode=NONE)
    stream.take(headers(mode=None))
    assert stream.ours.must_pick


def test_a_choice_may_have_more_headers_and_scores():
    stream = Stream(metadata_namespace="other")
    stream.take(headers(end=True))
    stream.ours.choose(["a:1"], headers=[("x-data-parallel-rank", "3")], scores=[("a:1", 0.5), ("b:1", -2.0)])
    (response,) = stream.sent()
    options = response.request_headers.response.header_mutation.set_headers
    assert [(option.header.key, option.header.raw_value) for option in options] == [
        (DESTINATION, b"a:1"),
        ("x-data-parallel-rank", b"3"),
    ]
    metadata = Struct()
    metadata.update({"other": {DESTINATION: "a:1", f"{DESTINATION}-scores": {"a:1": 0.5, "b:1": -2.0}}})
    assert response.dynamic_metadata == metadata


def test_a_request_that_is_rejected_gets_one_response_and_no_more():
    stream = Stream()
    stream.take(headers())
    stream.take(body(b"a"))
    stream.ours.reject(503, b"no")
    (response,) = stream.sent()
    assert response.immediate_response.status.code == 503
    assert response.immediate_response.body == b"no"
    assert (stream.ours.may_pick, stream.ours.must_pick, stream.ours.body) == (False, False, b"")
    assert stream.take(body(b"b", end=True)) == "nothing"
    stream.ours.reject(503, b"again")
    assert stream.sent() == []


def test_a_request_with_a_choice_is_not_rejected_any_more():
    stream = Stream()
    stream.take(headers(end=True))
    stream.ours.choose(["a:1"])
    stream.sent()
    stream.ours.reject(503, b"no")
    assert stream.sent() == []


def picked(response_mode=NONE):
    stream = Stream()
    stream.take(headers(response_mode=response_mode, end=True))
    stream.ours.choose(["a:1"])
    stream.sent()
    return stream


def test_a_response_has_a_status_and_ends_by_its_trailers():
    stream = picked()
    assert stream.ours.response_status is None
    assert stream.take(response_headers("503")) == "response"
    assert stream.sent() == [empty("response_headers")]
    assert (stream.ours.response_status, stream.ours.response_ended, stream.ours.served) == (503, False, "")
    assert stream.take(response_trailers()) == "response"
    assert stream.sent() == [empty("response_trailers")]
    assert stream.ours.response_ended


def test_a_response_without_a_body_ends_by_its_head():
    stream = picked()
    assert stream.take(response_headers(end=True)) == "response"
    assert stream.ours.response_ended


@pytest.mark.parametrize("status", ["", "2x0", "99", "1000", "-200"])
def test_a_status_that_is_none_is_unknown(status):
    stream = picked()
    stream.take(response_headers(status))
    assert stream.ours.response_status is None


def test_a_body_of_a_response_is_sent_back_where_the_mode_says_so():
    stream = picked(DUPLEX)
    stream.take(response_headers())
    stream.sent()
    assert stream.take(response_body(b"x" * 100_000)) == "nothing"
    assert pieces(stream.sent(), "response_body") == (b"x" * 100_000, False)
    assert stream.take(response_body(b"", end=True)) == "response"
    assert pieces(stream.sent(), "response_body") == (b"", True)
    assert stream.ours.response_ended


def test_a_body_of_a_response_in_other_modes_gets_an_empty_response():
    stream = picked(STREAMED)
    stream.take(response_headers())
    stream.sent()
    stream.take(response_body(b"x"))
    assert stream.take(response_body(b"y", end=True)) == "response"
    assert stream.sent() == [empty("response_body")] * 2


def test_the_endpoint_that_served_is_in_metadata_or_an_attribute():
    by_metadata, by_attribute, by_both = response_headers(), response_headers(), response_headers()
    for request in (by_metadata, by_both):
        request.metadata_context.filter_metadata["envoy.lb"].update(
            {f"{DESTINATION}-served": "10.0.0.2:8000"}
        )
    for request in (by_attribute, by_both):
        request.attributes["envoy.filters.http.ext_proc"].update({"upstream.address": "10.0.0.3:8000"})
    served = []
    for request in (by_metadata, by_attribute, by_both):
        stream = picked()
        stream.take(request)
        served.append(stream.ours.served)
    assert served == ["10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.2:8000"]


@pytest.mark.parametrize("mode", [NONE, STREAMED, BUFFERED, DUPLEX])
@pytest.mark.parametrize("end", [body(b"", end=True), trailers()], ids=["body", "trailers"])
def test_a_stream_is_amid_a_body_that_is_sent_back(mode, end):
    stream = Stream()
    stream.take(headers(mode))
    if mode == BUFFERED:
        stream.take(body(b"all", end=True))
    assert not stream.ours.is_amid_body
    stream.ours.choose(["a:1"])
    assert stream.ours.is_amid_body == (mode == DUPLEX)
    if mode != BUFFERED:
        stream.take(end)
    assert not stream.ours.is_amid_body


@pytest.mark.parametrize("mode", [NONE, STREAMED, DUPLEX])
@pytest.mark.parametrize("end", [response_body(b"", end=True), response_trailers()], ids=["body", "trailers"])
def test_a_stream_is_amid_a_response_that_is_sent_back(mode, end):
    stream = Stream()
    stream.take(headers(response_mode=mode, end=True))
    stream.ours.choose(["a:1"])
    assert not stream.ours.is_amid_body
    stream.take(response_headers())
    assert stream.ours.is_amid_body == (mode == DUPLEX)
    stream.take(end)
    assert not stream.ours.is_amid_body


def test_an_observer_sends_nothing():
    stream = Stream()
    assert stream.take(headers(observability_mode=True)) == "request"
    stream.ours.reject(503, b"no")
    assert stream.take(body(b"a", end=True)) == "request"
    assert stream.ours.body == b""
    stream.ours.choose(["a:1"])
    assert stream.take(response_headers(end=True)) == "response"
    assert stream.sent() == []
    assert (stream.ours.response_status, stream.ours.response_ended) == (200, True)


def test_a_message_without_a_part_is_ignored():
    stream = Stream()
    assert stream.take(ext_proc.ProcessingRequest()) == "nothing"
    assert stream.take(headers(end=True)) == "request"


@pytest.mark.parametrize(
    ("before", "request_", "problem"),
    [
        ([], body(b"a"), "a part of a request or response came before request_headers"),
        ([], response_headers(), "a part of a request or response came before request_headers"),
        ([headers()], headers(), "request_headers came twice"),
        ([headers(end=True)], body(b"a"), "request_body came behind the end of the request"),
        ([headers(), trailers()], body(b"a"), "request_body came behind the end of the request"),
        ([headers(BUFFERED)], trailers(), "request_trailers came without the body"),
    ],
    ids=["body", "response", "twice", "behind the head", "behind trailers", "no body"],
)
def test_parts_out_of_order_are_told(before, request_, problem):
    stream = Stream()
    for request in before:
        assert stream.take(request) == "request"
    assert stream.take(request_).startswith(f"INVALID_ARGUMENT: {problem}")


def test_a_body_before_the_choice_has_a_maximum_and_none_behind_it():
    stream = Stream(max_body_bytes=10)
    stream.take(headers())
    assert stream.take(body(b"12345678")) == "request"
    assert stream.take(body(b"123")).startswith(
        "RESOURCE_EXHAUSTED: the body of a request has more than 10 bytes"
    )
    assert stream.ours.body == b"12345678"
    stream.ours.choose(["a:1"])
    assert stream.take(body(b"x" * 1000)) == "nothing"


def test_messages_that_wait_for_a_choice_have_a_maximum():
    stream = Stream()
    stream.take(headers(STREAMED))
    assert {stream.take(body(b"")) for _ in range(1024)} == {"request"}
    assert stream.take(body(b"")).startswith("RESOURCE_EXHAUSTED: more than 1024 messages of a request wait")


def test_a_malformed_subset_is_told():
    request = headers().SerializeToString()
    list_value = ("text", 6, "\x0a\x09")
    entry = ("message", 1, [("text", 1, f"{DESTINATION}-subset"), ("message", 2, [list_value])])
    namespace = ("message", 1, [("text", 1, "envoy.lb.subset_hint"), ("message", 2, [entry])])
    request += testing.proto_write([("message", 8, [namespace])])
    assert testing.ExtProcStream().take(request).startswith("INVALID_ARGUMENT: a list")
