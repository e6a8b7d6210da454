"""cpp/http/head_writer.h: which header goes where, one row of the table after the other."""

import pytest

from tests.fuzz.rows import request, response
from tests.models import http_head
from tests.rows import for_each_row
from vllm_router import _core_testing as testing

HOP_BY_HOP = [
    b"Connection: keep-alive",
    b"Keep-Alive: timeout=5",
    b"Proxy-Connection: keep-alive",
    b"TE: trailers",
    b"Trailer: X-Checksum",
    b"Upgrade: websocket",
    b"HTTP2-Settings: AAMAAABkAAQAAP__",
    b"Proxy-Authenticate: Basic",
    b"Proxy-Authorization: Basic eHg=",
]


def lines(head):
    text = head.decode("latin-1")
    assert text.endswith("\r\n\r\n")
    return text[:-4].split("\r\n")


def upstream(*fields, start=b"POST /v1/completions HTTP/1.1", **parts):
    """Start line and fields of what the worker gets, without the ones that are always there."""
    written = lines(testing.write_upstream_head(request(*fields, start=start), **parts))
    return [line for line in written if line not in ("Host: worker:8000", "X-Forwarded-Host: a")]


def client(*fields, start=b"HTTP/1.1 200 OK", **parts):
    return lines(testing.write_client_head(response(*fields, start=start), **parts))


def either_case(field):
    name, colon, value = field.partition(b":")
    return [field, name.lower() + colon + value, name.upper() + colon + value]


# To the worker.


def test_a_plain_request_goes_on_with_its_fields_in_order_and_spelling():
    head = testing.write_upstream_head(
        request(b"X-b: 2", b"Accept: */*", b"x-B:  3 ", start=b"GET /v1/models?a=b HTTP/1.1")
    )
    assert lines(head) == [
        "GET /v1/models?a=b HTTP/1.1",
        "Host: worker:8000",
        "X-b: 2",
        "Accept: */*",
        "x-B: 3",
        "X-Forwarded-Host: a",
    ]


def test_the_head_is_appended():
    assert testing.write_upstream_head(request(), before="before").startswith(b"beforePOST")


@for_each_row("field", [spelled for field in HOP_BY_HOP for spelled in either_case(field)])
def test_hop_by_hop_fields_stay_behind(field):
    assert upstream(b"A: b", field, b"C: d")[1:] == ["A: b", "C: d"]
    assert client(b"A: b", field, b"C: d") == ["HTTP/1.1 200 OK", "A: b", "C: d"]


def test_fields_that_connection_names_stay_behind():
    fields = [b"Connection: X-Secret, close", b"x-secret: 1", b"X-Other: 2", b"X-SECRET: 3"]
    assert upstream(*fields)[1:] == ["X-Other: 2"]
    assert client(*fields)[1:] == ["X-Other: 2"]


def test_names_that_only_resemble_are_passed_on():
    fields = [
        b"Te-x: 1",
        b"Connections: 2",
        b"Hos: 3",
        b"Content_Length: 4",
        b"X-Vllm-Routes-a: 5",
        b"X-Vllm-Router-: 6",
    ]
    assert upstream(*fields)[1:] == [field.decode() for field in fields]


@pytest.mark.parametrize("start", [b"GET / HTTP/1.0", b"GET / HTTP/1.1"])
def test_we_speak_http11_to_workers(start):
    assert upstream(start=start)[0] == "GET / HTTP/1.1"


@pytest.mark.parametrize(
    ("framing", "length", "written"),
    [
        ("none", 0, []),
        ("length", 0, ["Content-Length: 0"]),
        ("length", 2**60, [f"Content-Length: {2**60}"]),
        ("chunked", 0, ["Transfer-Encoding: chunked"]),
    ],
)
def test_framing_is_ours_and_not_the_clients(framing, length, written):
    for field in [b"Content-Length: 7", b"Transfer-Encoding: chunked", b"X: y"]:
        kept = ["X: y"] if field == b"X: y" else []
        assert upstream(field, framing=framing, content_length=length)[1:] == kept + written


def test_the_host_is_the_workers():
    written = lines(testing.write_upstream_head(request(), authority="[::1]:8000"))
    assert [line for line in written if line.startswith("Host")] == ["Host: [::1]:8000"]


def test_the_clients_host_can_be_kept():
    written = lines(testing.write_upstream_head(request(), authority="w:1", preserve_host=True))
    assert written[1] == "Host: a"
    absolute = request(start=b"GET http://b:2/ HTTP/1.1")
    assert lines(testing.write_upstream_head(absolute, authority="w:1", preserve_host=True))[1] == "Host: b:2"


@pytest.mark.parametrize(
    ("target", "prefix", "written"),
    [
        (b"/a?b=c", "", "/a?b=c"),
        (b"/a?b=c", "/models/x", "/models/x/a?b=c"),
        (b"/a?", "/p", "/p/a?"),
        (b"http://h", "/p", "/p/"),
        (b"http://h?q", "/p", "/p/?q"),
        (b"http://h/a?q", "", "/a?q"),
    ],
)
def test_the_target_is_path_and_query_behind_the_workers_own_path(target, prefix, written):
    assert upstream(start=b"GET %b HTTP/1.1" % target, prefix=prefix)[0] == f"GET {written} HTTP/1.1"


def test_the_asterisk_has_no_prefix():
    assert upstream(start=b"OPTIONS * HTTP/1.1", prefix="/p")[0] == "OPTIONS * HTTP/1.1"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_we_are_the_last_hop_of_those_that_via_names(version):
    start = f"GET / HTTP/{version}".encode()
    written = upstream(b"Via: 2 a", b"X: y", b"via: 1.1 b, 1.1 c", start=start, hop_name="us")
    assert written[1:] == ["Via: 2 a", "X: y", "via: 1.1 b, 1.1 c", f"Via: {version} us"]


def test_the_clients_address_is_appended_to_those_before_it():
    assert upstream(client_address="9.9.9.9")[1:] == ["X-Forwarded-For: 9.9.9.9"]
    assert upstream(b"x-forwarded-for: 1.1.1.1", client_address="9.9.9.9")[1:] == [
        "X-Forwarded-For: 1.1.1.1, 9.9.9.9"
    ]
    several = upstream(
        b"X-Forwarded-For: 1.1.1.1, 2.2.2.2", b"X-Forwarded-For:", b"X-FORWARDED-FOR: 3", client_address="9"
    )
    assert several[1:] == ["X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3, 9"]


def test_protocol_and_host_are_told_unless_a_proxy_before_us_did():
    assert testing.write_upstream_head(request(), forwarded_proto="https").endswith(
        b"X-Forwarded-Proto: https\r\nX-Forwarded-Host: a\r\n\r\n"
    )
    told = [b"X-Forwarded-Proto: https", b"X-Forwarded-Host: outer"]
    assert upstream(*told, forwarded_proto="http")[1:] == [line.decode() for line in told]


def test_forwarded_fields_of_untrusted_clients_are_replaced():
    told = [b"X-Forwarded-For: 1.1.1.1", b"X-Forwarded-Proto: https", b"X-Forwarded-Host: outer"]
    written = testing.write_upstream_head(
        request(*told), client_address="9.9.9.9", forwarded_proto="http", trust_forwarded=False
    )
    assert lines(written)[2:] == [
        "X-Forwarded-For: 9.9.9.9",
        "X-Forwarded-Proto: http",
        "X-Forwarded-Host: a",
    ]


def test_forwarded_fields_that_connection_names_are_not_trusted():
    named = [
        b"Connection: X-Forwarded-For, X-Forwarded-Proto",
        b"X-Forwarded-For: 1",
        b"X-Forwarded-Proto: https",
    ]
    assert upstream(*named, client_address="9", forwarded_proto="http")[1:] == [
        "X-Forwarded-For: 9",
        "X-Forwarded-Proto: http",
    ]


def test_expect_stays_behind():
    assert upstream(b"Expect: 100-continue")[1:] == []


def test_the_request_id_travels_under_one_name():
    fields = [b"X-Request-Id: old", b"X-Correlation-Id: c", b"x-trace: t"]
    assert upstream(*fields, request_id="new")[1:] == [
        "X-Correlation-Id: c",
        "x-trace: t",
        "X-Request-Id: new",
    ]
    named = upstream(*fields, request_id="c", request_id_name="x-correlation-id")
    assert named[1:] == ["x-trace: t", "X-Request-Id: c"]
    assert upstream(*fields)[1:] == [field.decode() for field in fields]


def test_row_3_in_front_of_stages_no_id_and_no_rank_of_the_client_passes_in_any_spelling():
    names = ["X-Own", "x-correlation-id"]
    hidden = [b"X-Request-Id: a", b"x_request_id: a", b"X-Own: a", b"x_OWN: a", b"X_Correlation-Id: a"]
    ranks = [b"X-Data-Parallel-Rank: 1", b"X_Data_Parallel-rank: 1"]
    kept = [b"traceparent: t", b"X-Own-Too: k", b"XOwn: k", b"x-session-id: k"]
    parts = {"request_id": "new", "hide_ids": True, "id_names": names}
    expected = [*(field.decode() for field in kept), "X-Request-Id: new"]
    assert upstream(*hidden, *ranks, *kept, *hidden, **parts)[1:] == expected
    assert upstream(*hidden, *kept, **{**parts, "id_names": []})[1:] == [
        *("X-Own: a", "x_OWN: a", "X_Correlation-Id: a"),
        *expected,
    ]


def test_authorization_is_passed_and_only_filled_in_when_missing():
    assert upstream(b"Authorization: Bearer u", authorization="Bearer w")[1:] == ["Authorization: Bearer u"]
    assert upstream(authorization="Bearer w")[1:] == ["Authorization: Bearer w"]
    assert upstream()[1:] == []


def test_authorization_that_was_meant_for_us_stays_behind():
    """Row 28: so do the key of Azure's clients, and that of a WebSocket among its subprotocols."""
    mine = b"Authorization: Bearer u"
    assert upstream(mine, drop_authorization=True)[1:] == []
    others = [b"x-api-key: u", b"Api-Key: u", b"Sec-WebSocket-Protocol: openai-insecure-api-key.u"]
    assert upstream(*others, drop_authorization=True)[1:] == []
    assert upstream(*others)[1:] == [field.decode() for field in others]
    offered = b"sec-websocket-protocol: realtime,openai-insecure-api-key.u, openai-beta.realtime-v1"
    assert upstream(offered, drop_authorization=True)[1:] == [
        "sec-websocket-protocol: realtime, openai-beta.realtime-v1"
    ]
    assert upstream(offered)[1:] == [offered.decode()]
    assert upstream(mine, drop_authorization=True, authorization="Bearer w")[1:] == [
        "Authorization: Bearer w"
    ]


def test_trace_context_is_passed():
    fields = [b"traceparent: 00-1-2-01", b"tracestate: a=b", b"baggage: c=d"]
    assert upstream(*fields)[1:] == [field.decode() for field in fields]


def test_a_trace_context_of_the_routers_replaces_the_clients():
    fields = [b"Traceparent: 00-1-2-01", b"tracestate: a=b", b"baggage: c=d", b"traceparent: x"]
    assert upstream(*fields, traceparent="00-1-3-01")[1:] == [
        *("tracestate: a=b", "baggage: c=d"),
        "traceparent: 00-1-3-01",
    ]
    assert upstream(*fields, traceparent="00-1-3-01", drop_tracestate=True)[1:] == [
        "baggage: c=d",
        "traceparent: 00-1-3-01",
    ]
    assert upstream(traceparent="00-1-3-01")[1:] == ["traceparent: 00-1-3-01"]


def test_the_chosen_rank_replaces_the_clients():
    theirs = b"x-data-parallel-rank: 7"
    assert upstream(theirs)[1:] == ["x-data-parallel-rank: 7"]
    assert upstream(theirs, data_parallel_rank=0)[1:] == ["X-Data-Parallel-Rank: 0"]
    assert upstream(data_parallel_rank=2**32 - 1)[1:] == ["X-Data-Parallel-Rank: 4294967295"]


def test_nobody_else_speaks_for_the_router():
    assert upstream(b"X-Vllm-Router-Worker: http://evil", b"x-vllm-router-x: y")[1:] == []
    assert client(b"x-vllm-router-worker: http://evil")[1:] == []


def test_large_additions_fit_however_small_the_request_was():
    long = "v" * 10_000
    written = testing.write_upstream_head(
        request(start=b"GET / HTTP/1.0"),
        prefix="/" + long,
        authority=long,
        client_address=long,
        forwarded_proto=long,
        request_id=long,
        authorization=long,
    )
    assert len(written) > 60_000
    assert written.count(long.encode()) == 6


# To the client.


def test_a_plain_answer_goes_on_with_its_fields_in_order_and_spelling():
    answer = client(b"Server: uvicorn", b"content-encoding: gzip", b"Set-Cookie: a", b"Set-Cookie: b")
    assert answer == [
        "HTTP/1.1 200 OK",
        "Server: uvicorn",
        "content-encoding: gzip",
        "Set-Cookie: a",
        "Set-Cookie: b",
    ]


def test_the_status_line_is_http11_with_the_workers_words():
    assert client(start=b"HTTP/1.0 418 I'm a teapot")[0] == "HTTP/1.1 418 I'm a teapot"
    assert client(start=b"HTTP/1.1 200 ")[0] == "HTTP/1.1 200 "


@pytest.mark.parametrize(
    ("framing", "written"),
    [("length", ["Content-Length: 3"]), ("chunked", ["Transfer-Encoding: chunked"]), ("until_close", [])],
)
def test_framing_of_the_answer_is_ours(framing, written):
    for field in [b"Content-Length: 7", b"Transfer-Encoding: chunked"]:
        assert client(field, framing=framing, content_length=3)[1:] == written


def test_the_length_of_a_body_that_does_not_follow_passes():
    length = b"content-length: 7"
    assert client(length, to_head=True)[1:] == ["content-length: 7"]
    assert client(length, start=b"HTTP/1.1 304 Not Modified")[1:] == ["content-length: 7"]
    assert client(length, start=b"HTTP/1.1 204 No Content")[1:] == []
    assert client(b"Transfer-Encoding: chunked", to_head=True)[1:] == []


def test_how_the_connection_goes_on_is_ours_to_say():
    assert client(b"Connection: close")[1:] == []
    assert client(close=True)[1:] == ["Connection: close"]
    assert client(keep_alive_10=True)[1:] == ["Connection: keep-alive"]
    assert client(close=True, keep_alive_10=True)[1:] == ["Connection: close"]


def test_the_request_id_replaces_the_workers():
    assert client(b"X-Request-Id: theirs", request_id="ours")[1:] == ["x-request-id: ours"]
    assert client(b"X-Request-Id: theirs")[1:] == ["X-Request-Id: theirs"]


def test_our_own_fields_replace_the_workers():
    extra = [("Access-Control-Allow-Origin", "https://a"), ("x-vllm-router-worker", "w1")]
    answer = client(b"access-control-allow-origin: *", b"x-vllm-router-worker: w2", b"A: b", extra=extra)
    assert answer[1:] == ["A: b", "Access-Control-Allow-Origin: https://a", "x-vllm-router-worker: w1"]


def test_what_is_only_a_requests_passes_in_an_answer():
    fields = [b"Expect: x", b"Host: y", b"Authorization: z", b"X-Forwarded-For: 1"]
    assert client(*fields)[1:] == [field.decode() for field in fields]


# What we write is what the other side reads.


def test_an_upstream_head_reads_as_the_client_meant_it():
    theirs = [b"Accept: */*", b"Content-Length: 5", b"X-A: b"]
    written = testing.write_upstream_head(
        request(*theirs), client_address="9.9.9.9", request_id="id", framing="length", content_length=5
    )
    read = http_head.parse_request(written)
    assert read["state"] == "done"
    assert (read["method"], read["target"], read["framing"]) == (b"POST", b"/v1/completions", "length")
    assert testing.RequestHeadParser().parse(written) == read


# Answers of our own.


def test_an_own_answer_is_whole():
    written = testing.write_own_response(
        status=429, body='{"error":1}', request_id="id", extra=[("Retry-After", "1")], close=True
    )
    assert written == (
        b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: 11\r\n"
        b'x-request-id: id\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{"error":1}'
    )


def test_an_own_answer_to_head_has_the_length_and_not_the_body():
    assert testing.write_own_response(body="abc", to_head=True, content_type="text/plain") == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\n"
    )


def test_an_own_answer_without_a_body_says_so():
    assert testing.write_own_response() == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert testing.write_own_response(status=204) == b"HTTP/1.1 204 No Content\r\n\r\n"


@for_each_row("status", [400, 405, 408, 413, 414, 417, 429, 431, 499, 500, 501, 502, 503, 504, 505])
def test_the_refusals_have_phrases(status):
    phrase = testing.reason_phrase(status)
    assert (phrase == "Unknown") == (status == 499)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 255, 4096, 2**32, 2**64 - 1])
def test_chunk_sizes_are_hexadecimal(size):
    assert testing.write_chunk_size(size) == b"%x\r\n" % size


def test_an_upgrade_to_websocket_is_asked_for_in_our_own_words():
    """mending row 17: hop-by-hop fields are written anew, whatever the client's Connection named."""
    fields = (b"Connection: x-a, Upgrade", b"Upgrade: WEBSOCKET", b"X-A: 1", b"Sec-WebSocket-Version: 13")
    written = upstream(*fields, start=b"GET /x HTTP/1.1", websocket=True)
    assert written == [
        "GET /x HTTP/1.1",
        "Sec-WebSocket-Version: 13",
        "Connection: Upgrade",
        "Upgrade: websocket",
    ]
    assert "Upgrade" not in "".join(upstream(*fields, start=b"GET /x HTTP/1.1"))


def test_a_switch_to_websocket_is_told_in_our_own_words():
    fields = (b"Upgrade: WebSocket", b"Connection: upgrade, x-a", b"X-A: 1", b"Content-Length: 5", b"B: c")
    start = b"HTTP/1.1 101 Switching Protocols"
    assert client(*fields, start=start, websocket=True, close=True, request_id="r") == [
        "HTTP/1.1 101 Switching Protocols",
        "B: c",
        "x-request-id: r",
        "Connection: Upgrade",
        "Upgrade: websocket",
    ]
