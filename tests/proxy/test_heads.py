"""Request heads on the wire: what is refused and how, and what has to work in whatever pieces it arrives."""

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunked, request, response

LINE = b"POST /v1/completions HTTP/1.1\r\n"
HEAD = LINE + b"Host: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def field(line: bytes) -> bytes:
    return HEAD + line + b"\r\n\r\n"


def target(text: bytes) -> bytes:
    return b"GET " + text + b" HTTP/1.1\r\nHost: a\r\n\r\n"


# One or two for each way to be refused. Numbers are rows of tests/fuzz/rows.py, which has all of them;
# the parsers are tested with these in tests/unit/http/.
REFUSED = [
    (1, "an unknown coding", field(b"Transfer-Encoding: xchunked"), 501),
    (7, "coding and length", field(b"Transfer-Encoding: chunked\r\nContent-Length: 5"), 400),
    (13, "length 2^63", field(b"Content-Length: 9223372036854775808"), 413),
    (14, "a blank before the colon", field(b"Content-Length : 5"), 400),
    (16, "lines that end with LF", HEAD.replace(b"\r\n", b"\n") + b"\n", 400),
    (18, "NUL in a value", field(b"X: a\0b"), 400),
    (21, "three empty lines first", b"\r\n\r\n\r\n" + field(b"X: a"), 400),
    (25, "no version", b"GET /x\r\n\r\n", 400),
    (26, "the preface of HTTP/2", H2_PREFACE, 505),
    (28, "no Host", LINE + b"\r\n", 400),
    (29, "CONNECT", b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    (30, "chunk size 0x5", CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", 400),
    (34, "a chunk longer than its size", CHUNKED + b"5\r\nhello!\r\n0\r\n\r\n", 400),
    (35, "an endless extension", CHUNKED + b"5;" + b"x" * 100_000 + b"\r\nhello\r\n0\r\n\r\n", 400),
    (37, "a length in the trailers", CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n", 400),
    (37, "trailers without end", CHUNKED + b"0\r\n" + b"x: aaaaaaaaaaa\r\n" * 600, 400),
    (42, "a head of more than 64 KiB", HEAD + b"X: " + b"a" * 65536, 431),
    (42, "a target of 8 KiB + 1", target(b"/" + b"a" * 8192), 414),
    (0, "an unknown expectation", field(b"Expect: 200-ok"), 417),
    (0, "a URL without host", target(b"http:///b"), 400),
    (0, "a method of 33 letters", b"A" * 33 + b" / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
]


@pytest.mark.parametrize("pieces", ["whole", "in pieces"])
@pytest.mark.parametrize(
    ("bad", "status"), [row[2:] for row in REFUSED], ids=[f"{row[0]} {row[1]}" for row in REFUSED]
)
def test_a_malformed_request_is_answered_with_its_status_and_reaches_no_worker(harness, bad, status, pieces):
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    if pieces == "whole":
        client.send(bad)
    else:
        client.send_in_pieces(bad, max(1, len(bad) // 300))
    answer = client.read_response()
    assert answer.status == status
    assert answer.get("connection") == "close"
    assert answer.get("x-request-id")
    error_of(answer)
    client.must_be_closed()
    assert worker.connections == []
    harness.client(router).must_be_open()


@pytest.mark.parametrize("bad", [row[2] for row in REFUSED if row[0] in (7, 13, 16, 28, 34, 37)])
def test_nothing_after_a_malformed_request_is_ever_parsed(harness, bad):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    client.send(bad + request("GET", "/smuggled") * 3)
    assert client.read_response().status in (400, 413)
    client.must_be_closed()
    assert worker.connections == []


def test_a_path_with_an_encoded_nul_is_refused_and_the_connection_goes_on(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    for path in ("/a%00b", "/%00", "/v1/completions/%00?x"):
        answer = client.ask("POST", path, body=b"{}")
        assert (answer.status, error_of(answer)["code"]) == (400, "nul_in_path")
    assert worker.connections == []
    assert client.ask("GET", "/a?%00").status == 200


@pytest.mark.parametrize("method", ["TRACE", "TRACK", "trace", "CONNECT"])
@pytest.mark.parametrize("body", [None, b"{}"])
def test_a_method_that_would_show_what_was_added_or_open_a_tunnel_reaches_no_worker(harness, method, body):
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    response = client.ask(method, "/v1/completions", body=body)
    assert response.status == 405
    assert response.get("allow") == "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
    error_of(response)
    assert worker.connections == []
    assert harness.client(router).ask("TRACER", "/x").status == 200
    own = harness.client(router).ask("TRACE", "/health")
    assert (own.status, own.get("allow")) == (405, "GET, HEAD")


def test_tls_on_the_plain_port_is_closed_without_a_word(harness):  # row 27
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64))
    assert client.ending() in ("eof", "reset")
    assert client.received == b""
    assert worker.connections == []


def test_a_client_that_says_nothing_gets_nothing(harness):
    router = harness.router(harness.worker())
    client = harness.client(router)
    client.half_close()
    client.must_be_closed()


def test_a_head_that_ends_in_the_middle_is_dropped_without_an_answer(harness):
    router = harness.router(harness.worker())
    client = harness.client(router)
    client.send(b"GET /x HTTP/1.1\r\nHo")
    client.half_close()
    client.must_be_closed()


@pytest.mark.parametrize(
    "good",
    [
        HEAD + b"X: a\r\n" * 99 + b"\r\n",  # 100 fields
        target(b"/" + b"a" * 8191),
        field(b"x" * 256 + b": a"),
        field(b"Connection: " + b", ".join([b"a"] * 16)),
        HEAD + b"X: " + b"a" * (65536 - len(HEAD) - 7) + b"\r\n\r\n",  # 64 KiB
        b"\r\n" + field(b"X: a"),
        b"\r\n\r\n" + field(b"X: a"),
    ],
    ids=["100 fields", "target", "name", "tokens", "64 KiB", "one empty line", "two empty lines"],
)
def test_a_head_just_within_the_limits_passes(harness, good):
    client = harness.client(harness.router(harness.worker()))
    client.send(good)
    assert client.read_response().body == b"hello"
    client.must_be_open()


# ---- pieces


def test_a_request_cut_in_two_anywhere_arrives_whole(harness):
    worker = harness.worker(
        lambda connection, message: connection.send(response(200, message.target.encode() + message.body))
    )
    client = harness.client(harness.router(worker))
    whole = request(
        "POST", "/v1/completions?a=b", ("X-A", "1"), ("Content-Type", "text/plain"), body=b"hello"
    )
    for cut in range(1, len(whole)):
        client.send(whole[:cut], whole[cut:])
        assert client.read_response().body == b"/v1/completions?a=bhello", cut
    heads = {message.head for message in worker.requests if message.get("x-request-id")}
    assert len({head.split(b"X-Request-Id")[0] for head in heads}) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_request_arrives_whole_in_pieces_of_any_size(harness, size):
    worker = harness.worker(lambda connection, message: connection.send(response(200, message.body)))
    client = harness.client(harness.router(worker))
    fields = [(f"X-Field-{number}", "value" * number) for number in range(20)]
    client.send_in_pieces(request("POST", "/v1/embeddings", *fields, body=b"abc" * 50), size)
    assert client.read_response().body == b"abc" * 50
    client.send_in_pieces(
        request("POST", "/v1/embeddings", *fields, ("Transfer-Encoding", "chunked"))
        + chunked(b"ab", b"c" * 40),
        size,
    )
    assert client.read_response().body == b"ab" + b"c" * 40
    for message in worker.requests:
        assert [(name, value) for name, value in message.fields if name.startswith("X-Field")] == fields


def test_requests_that_are_pipelined_are_answered_in_order(harness):
    worker = harness.worker(
        lambda connection, message: connection.send(response(200, message.target.encode() + message.body))
    )
    client = harness.client(harness.router(worker))
    client.send(
        b"".join(
            request("GET", f"/{number}")
            if number % 3 == 0
            else request("POST", f"/{number}", body=b"x" * number)
            if number % 3 == 1
            else request("POST", f"/{number}", ("Transfer-Encoding", "chunked")) + chunked(b"y" * number)
            for number in range(1, 300)
        )
    )
    for number in range(1, 300):
        letters = (b"", b"x" * number, b"y" * number)[number % 3]
        assert client.read_response().body == b"/%d" % number + letters
    client.must_be_open()


def test_pipelined_requests_cut_anywhere_are_answered_in_order(harness, rng):
    worker = harness.worker(
        lambda connection, message: connection.send(response(200, message.target.encode() + message.body))
    )
    client = harness.client(harness.router(worker))
    stream = b""
    expected = []
    for number in range(100):
        body = rng.randbytes(rng.choice([0, 1, 10, 3000]))
        if rng.random() < 0.5:
            stream += request("POST", f"/{number}", body=body)
        else:
            at = rng.randint(0, len(body))
            pieces = [piece for piece in (body[:at], body[at:]) if piece]
            stream += request("POST", f"/{number}", ("Transfer-Encoding", "chunked")) + chunked(*pieces)
        expected.append(b"/%d" % number + body)
    cuts = sorted(rng.sample(range(1, len(stream)), 60))
    client.send(*(stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)))
    for body in expected:
        assert client.read_response().body == body


def test_own_and_proxied_answers_keep_their_order_in_a_pipeline(harness):
    client = harness.client(harness.router(harness.worker()))
    client.send((request("GET", "/liveness") + request("GET", "/x")) * 20)
    for _ in range(20):
        assert client.read_response().body == b"OK"
        assert client.read_response().body == b"hello"


def test_after_connection_close_nothing_more_is_read(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    client.send(request("GET", "/1", ("Connection", "close")) + request("GET", "/2"))
    answer = client.read_response()
    assert (answer.body, answer.get("connection")) == (b"hello", "close")
    client.must_be_closed()
    assert [message.target for message in worker.requests] == ["/1"]


# ---- forms and versions


def test_an_absolute_target_is_routed_by_its_path_and_its_authority_is_the_host(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    client.send(b"GET http://Elsewhere:8080/v1/x?y=z HTTP/1.1\r\nHost: ignored\r\n\r\n")
    assert client.read_response().body == b"hello"
    client.send(b"PUT https://elsewhere?q HTTP/1.1\r\nHost: ignored\r\n\r\n")
    assert client.read_response().body == b"hello"
    first, second = worker.requests
    assert (first.start_line, first.get("host")) == ("GET /v1/x?y=z HTTP/1.1", worker.authority)
    assert first.get("x-forwarded-host") == "Elsewhere:8080"
    assert second.start_line == "PUT /?q HTTP/1.1"
    client.send(b"GET http://a/liveness HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.read_response().body == b"OK"


def test_options_star_is_answered_here_and_options_of_a_path_by_a_worker(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    answer = client.ask("OPTIONS", "*")
    assert (answer.status, answer.body) == (200, b"")
    assert worker.connections == []
    assert client.ask("OPTIONS", "/v1/x").body == b"hello"


def test_head_is_answered_without_a_body(harness):
    client = harness.client(harness.router(harness.worker()))
    for path in ("/x", "/liveness", "/workers"):
        answer = client.ask("HEAD", path)
        assert answer.status == 200
    client.must_be_open()


@pytest.mark.parametrize("keep_alive", [False, True])
def test_http_1_0_keeps_the_connection_only_when_asked(harness, keep_alive):
    client = harness.client(harness.router(harness.worker()))
    fields = [("Connection", "Keep-Alive")] if keep_alive else []
    answer = client.ask("GET", "/x", *fields, version="1.0", host=None)
    assert answer.body == b"hello"
    if keep_alive:
        assert answer.get("connection") == "keep-alive"
        assert client.ask("GET", "/x", *fields, version="1.0", host=None).body == b"hello"
    else:
        assert answer.get("connection") == "close"
        client.must_be_closed()


def test_any_method_and_path_goes_through(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    for method, path in [
        ("PATCH", "/a/b"),
        ("PURGE", "/"),
        ("M-SEARCH", "/%2e%2e/x?"),
        ("DELETE", "//x?a=%20&b"),
    ]:
        assert client.ask(method, path).body == b"hello"
        assert worker.requests[-1].start_line == f"{method} {path} HTTP/1.1"


# ---- Expect


def test_100_continue_is_sent_before_the_body_and_expect_stays_here(harness):
    worker = harness.worker(lambda connection, message: connection.send(response(200, message.body)))
    client = harness.client(harness.router(worker))
    whole = request("POST", "/x", ("Expect", "100-Continue"), body=b"hello")
    client.send(whole[:-5])
    assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert worker.connections == []
    client.send(b"hello")
    assert client.read_response().body == b"hello"
    assert worker.requests[0].get("expect") is None
    client.must_be_open()


def test_100_continue_is_sent_for_a_streamed_body(harness):
    worker = harness.worker(lambda connection, message: connection.send(response(200, message.body)))
    client = harness.client(harness.router(worker))
    body = bytes(100_000)
    whole = request("POST", "/x", ("Expect", "100-continue"), body=body)
    client.send(whole[: -len(body)])
    assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(body)
    assert client.read_response().body == body


def test_no_100_continue_when_there_is_nothing_to_wait_for(harness):
    client = harness.client(harness.router(harness.worker()))
    for whole in [
        request("POST", "/x", ("Expect", "100-continue"), body=b"hello"),  # came along
        request("POST", "/x", ("Expect", "100-continue"), body=b""),
        request("GET", "/x", ("Expect", "100-continue")),
        request(
            "POST", "/x", ("Expect", "100-continue"), ("Connection", "keep-alive"), body=b"a", version="1.0"
        ),
    ]:
        client.send(whole)
        answer = client.read_response()
        assert (answer.status, answer.informational) == (200, [])


def test_a_refusal_comes_instead_of_100_continue(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker, max_payload_size=4))
    client.send(request("POST", "/x", ("Expect", "100-continue"), body=b"hello")[:-5])
    answer = client.read_response()
    assert (answer.status, answer.informational, error_of(answer)["code"]) == (413, [], "body_too_large")
    client.must_be_closed()
    assert worker.connections == []


def test_http_1_0_expects_nothing_even_if_it_says_so(harness):
    client = harness.client(harness.router(harness.worker()))
    assert client.ask("GET", "/x", ("Expect", "200-ok"), version="1.0").body == b"hello"
