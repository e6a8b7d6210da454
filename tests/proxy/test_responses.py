"""Answers of workers on the wire: every framing, in whatever pieces, to every kind of client."""

import threading

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import EndedEarlyError, chunk, chunked, request, response

OK = b"HTTP/1.1 200 OK\r\n"
SSE_HEAD = OK + b"Content-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def says(*pieces: bytes, then: str = "keep"):
    """An answer of these bytes, however they are cut; afterwards the connection is kept, closed or reset."""

    def answer(connection, _message):
        connection.send(*pieces)
        if then == "close":
            connection.close()
        elif then == "reset":
            connection.wait_until_read()
            connection.reset()

    return answer


# ---- framing


def test_a_body_with_a_length_keeps_it(harness):
    body = bytes(range(256)) * 1000
    client = harness.client(harness.router(harness.worker(says(response(200, body, ("X-A", "1"))))))
    for _ in range(2):
        answer = client.ask()
        assert (answer.framing, answer.body, answer.get("x-a")) == ("length", body, "1")


def test_a_chunked_body_stays_chunked(harness):
    pieces = [b"a", b"b" * 5000, b"c" * 70_000]
    worker = harness.worker(says(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*pieces)))
    client = harness.client(harness.router(worker))
    for _ in range(2):
        answer = client.ask()
        assert (answer.framing, answer.body) == ("chunked", b"".join(pieces))
    assert len(worker.connections) == 1


def test_a_body_that_ends_with_the_connection_becomes_chunked(harness):
    worker = harness.worker(says(OK + b"Content-Type: text/plain\r\n\r\n" + b"x" * 100_000, then="close"))
    client = harness.client(harness.router(worker))
    for _ in range(2):
        answer = client.ask()
        assert (answer.framing, answer.body) == ("chunked", b"x" * 100_000)
    assert len(worker.connections) == 2


def test_an_http_1_0_worker_s_connection_is_kept_only_if_it_says_so(harness):
    worker = harness.worker(says(response(200, b"old", version="1.0")))
    client = harness.client(harness.router(worker))
    client.ask()
    client.ask()
    assert len(worker.connections) == 2
    worker.answer = says(response(200, b"old", ("Connection", "keep-alive"), version="1.0"))
    client.ask()
    client.ask()
    assert len(worker.connections) == 3


@pytest.mark.parametrize("keep_alive", [False, True])
@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"hel", b"lo"),
        OK + b"Connection: close\r\n\r\nhello",
    ],
    ids=["chunked", "until close"],
)
def test_an_http_1_0_client_gets_an_unknown_length_plain_until_the_connection_closes(
    harness, raw, keep_alive
):
    worker = harness.worker(says(raw, then="keep" if b"chunked" in raw else "close"))
    client = harness.client(harness.router(worker))
    fields = [("Connection", "keep-alive")] if keep_alive else []
    answer = client.ask("GET", "/x", *fields, version="1.0")
    assert (answer.framing, answer.body, answer.get("connection")) == ("close", b"hello", "close")


def test_an_http_1_0_client_gets_a_known_length_with_keep_alive(harness):
    client = harness.client(harness.router(harness.worker()))
    for _ in range(2):
        answer = client.ask("GET", "/x", ("Connection", "keep-alive"), version="1.0")
        assert (answer.framing, answer.body, answer.get("connection")) == ("length", b"hello", "keep-alive")


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("fields", [[], [("Content-Length", "5")], [("Transfer-Encoding", "chunked")]])
def test_204_and_304_have_no_body_whatever_their_fields_say(harness, status, fields):
    worker = harness.worker(says(response(status, b"", *fields, ("ETag", '"a"'), length=False)))
    client = harness.client(harness.router(worker))
    for _ in range(2):
        answer = client.ask()
        assert (answer.status, answer.get("etag")) == (status, '"a"')
        assert answer.get("transfer-encoding") is None
        expected = "5" if status == 304 and fields == [("Content-Length", "5")] else None
        assert answer.get("content-length") == expected
    client.must_be_open()
    assert len(worker.connections) == 1


@pytest.mark.parametrize("fields", [[("Content-Length", "12345")], [("Transfer-Encoding", "chunked")], []])
def test_an_answer_to_head_has_no_body_but_says_how_long_it_would_be(harness, fields):
    worker = harness.worker(says(response(200, b"", *fields, length=False)))
    client = harness.client(harness.router(worker))
    for _ in range(2):
        answer = client.ask("HEAD")
        assert (answer.status, answer.get("content-length")) == (200, dict(fields).get("Content-Length"))
    client.must_be_open()
    assert len(worker.connections) == 1


def test_204_followed_by_bytes_is_204_and_the_connection_is_not_used_again(harness):  # row 41
    worker = harness.worker(says(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello"))
    client = harness.client(harness.router(worker))
    for _ in range(2):
        assert client.ask().status == 204
    client.must_be_open()
    assert len(worker.connections) == 2
    worker.connections[0].wait_ended()


@pytest.mark.parametrize(
    "raw",
    [
        response(200, b"hello") + b"x",
        response(200, b"hello") + response(200, b"poison"),
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"hello") + b"x",
        OK + b"Content-Length: 0\r\n\r\n" + response(200, b"poison"),
    ],
)
def test_bytes_after_the_end_of_an_answer_reach_nobody(harness, raw):
    worker = harness.worker(says(raw))
    client = harness.client(harness.router(worker))
    for _ in range(3):
        assert client.ask().body in (b"hello", b"")
    client.must_be_open()
    assert len(worker.connections) == 3


def test_bytes_that_come_later_out_of_turn_reach_nobody(harness):
    worker = harness.worker(says(response(200, b"hello"), response(200, b"poison")))
    client = harness.client(harness.router(worker))
    for number in range(1, 4):
        assert client.ask().body == b"hello"
        worker.connections[-1].wait_ended()
        assert len(worker.connections) == number


@pytest.mark.parametrize("status", [200, 201, 299, 301, 400, 401, 404, 429, 500, 503, 599])
def test_the_worker_s_status_and_reason_pass_unchanged(harness, status):
    worker = harness.worker(says(response(status, b"{}", reason="Just Because")))
    client = harness.client(harness.router(worker))
    answer = client.ask()
    assert (answer.start_line, answer.body) == (f"HTTP/1.1 {status} Just Because", b"{}")
    client.must_be_open()


def test_trailers_are_dropped(harness):
    raw = OK + b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
    worker = harness.worker(says(raw))
    client = harness.client(harness.router(worker))
    for _ in range(2):
        answer = client.ask()
        assert answer.raw_body.endswith(b"0\r\n\r\n")
        assert b"X-Sum" not in answer.raw
    assert len(worker.connections) == 1


# ---- informational


@pytest.mark.parametrize("count", [0, 1, 8, 9, 40, 1000, 1001])
def test_up_to_a_thousand_informational_heads_are_swallowed(harness, count):
    """mending row 18: a worker that reports progress by interim heads is no broken one."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    worker = harness.worker(says(hints * count + response(200, b"hello")))
    client = harness.client(harness.router(worker))
    answer = client.ask()
    assert answer.informational == []
    if count <= 1000:
        assert answer.body == b"hello"
        assert client.ask().body == b"hello"
        assert len(worker.connections) == 1
    else:
        assert (answer.status, error_of(answer)["code"]) == (502, "worker_bad_answer")
        worker.connections[0].wait_ended()


def test_informational_answers_in_pieces_are_swallowed(harness):
    pieces = [
        b"HTTP/1.1 100 Con",
        b"tinue\r\n\r",
        b"\nHTTP/1.1 102 Processing\r\n\r\n",
        response(200, b"hello"),
    ]
    client = harness.client(harness.router(harness.worker(says(*pieces))))
    assert client.ask().body == b"hello"


# ---- odd, and unambiguous


HELLO_CHUNKS = b"5 \t\r\nhello\r\n0  \r\n\r\n"
ODD = {
    "no blank behind the status": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
    "two equal lengths": OK + b"Content-Length: 5\r\nX: y\r\ncontent-length:  5 \r\n\r\nhello",
    "blanks behind chunk sizes": OK + b"Transfer-Encoding: chunked\r\n\r\n" + HELLO_CHUNKS,
}


@pytest.mark.parametrize("cut", ["whole", "in pieces"])
@pytest.mark.parametrize("raw", ODD.values(), ids=ODD)
def test_an_odd_response_that_can_be_read_in_one_way_only_passes_in_plain_form(harness, raw, cut):
    """mending row 18: what nginx and HAProxy pass passes here, with framing of our own."""
    worker = harness.worker(lambda wire, _: wire.send_in_pieces(raw, len(raw) if cut == "whole" else 1))
    client = harness.client(harness.router(worker))
    for _ in range(2):
        response = client.ask()
        assert (response.status, response.body) == (200, b"hello")
        assert response.raw.startswith(b"HTTP/1.1 200 ")
        framing = [name.lower() for name, _ in response.fields if name.lower() in FRAMING_FIELDS]
        assert framing == ["transfer-encoding" if b"chunked" in raw else "content-length"]
        assert b"5 \t" not in response.raw
    assert len(worker.connections) == 1


FRAMING_FIELDS = ("content-length", "transfer-encoding")


@pytest.mark.parametrize("status", ["200 OK", "304 Not Modified"])
def test_a_repeated_length_without_a_body_passes_once(harness, status):
    """mending row 18: where a worker's Content-Length passes as a mere field, it does so once."""
    raw = f"HTTP/1.1 {status}\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n".encode()
    client = harness.client(harness.router(harness.worker(says(raw))))
    response = client.ask("HEAD")
    assert [value for name, value in response.fields if name.lower() == "content-length"] == ["5"]
    client.must_be_open()


# ---- answers that are none


GARBAGE = [
    ("38 both framings", OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"hello")),
    ("40 bare LF", b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
    ("44 101 unasked", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"),
    ("HTTP/2", b"HTTP/2.0 200 OK\r\n\r\n"),
    ("something else", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ("zeros", bytes(1000)),
    ("a head without end", OK + b"X: " + b"a" * 70_000),
    ("empty lines first", b"\r\n\r\n" + response(200, b"hello")),
]


@pytest.mark.parametrize("cut", ["whole", "in pieces"])
@pytest.mark.parametrize("garbage", [row[1] for row in GARBAGE], ids=[row[0] for row in GARBAGE])
def test_an_answer_that_is_not_http_is_a_502_and_the_connection_is_closed(harness, garbage, cut):
    def answer(connection, _message):
        connection.send_in_pieces(garbage, len(garbage) if cut == "whole" else max(1, len(garbage) // 100))
        assert connection.ending() in ("eof", "reset")

    worker = harness.worker(answer)
    client = harness.client(harness.router(worker))
    got = client.ask("POST", "/v1/completions", body=b"{}")
    assert (got.status, error_of(got)["code"]) == (502, "worker_bad_answer")
    assert str(worker.port) not in got.body.decode()
    worker.connections[0].wait_ended()
    client.must_be_open()
    assert len(worker.requests) == 1


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 2", OK, OK + b"Content-Length: 5\r\n"])
@pytest.mark.parametrize("then", ["close", "reset"])
def test_a_worker_that_leaves_before_its_head_is_complete_is_a_502(harness, said, then):
    worker = harness.worker(says(said, then=then))
    client = harness.client(harness.router(worker))
    got = client.ask("POST", "/v1/completions", body=b"{}")
    assert (got.status, error_of(got)["code"]) == (502, "worker_closed")
    client.must_be_open()
    assert len(worker.requests) == 1


# ---- broken off


def until_it_breaks(client) -> tuple[bytes, str]:
    """What still comes, and how it ended: a message cut short must never look whole."""
    try:
        rest = client.read_to_end()
    except ConnectionError:
        return b"", "reset"
    return rest, "eof"


@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize("end", [b"", b"5\r\nhe", b"5\r\nhello", b"5", b"0\r\n", b"0\r\nX: y\r\n"])
def test_a_chunked_answer_cut_short_never_looks_whole(harness, then, end):
    worker = harness.worker(
        says(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"first") + end, then=then)
    )
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request())
    assert client.read_head().status == 200
    assert client.read_chunk().startswith(b"first")
    rest, _ = until_it_breaks(client)
    assert b"0\r\n\r\n" not in rest
    router.must_rest()


@pytest.mark.parametrize("then", ["close", "reset"])
def test_an_answer_shorter_than_its_length_is_cut_short(harness, then):
    worker = harness.worker(says(OK + b"Content-Length: 10\r\n\r\nhello", then=then))
    client = harness.client(harness.router(worker))
    client.send(request())
    assert client.read_head().get("content-length") == "10"
    with pytest.raises((EndedEarlyError, ConnectionResetError)):
        client.read_exactly(10)


@pytest.mark.parametrize("then", ["close", "reset"])
def test_an_http_1_0_client_of_a_broken_stream_sees_a_reset(harness, then):
    # The end of the connection is the end of its body, so a proper end would make a part look like the whole.
    worker = harness.worker(says(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"first"), then=then))
    client = harness.client(harness.router(worker))
    client.send(request(version="1.0"))
    assert client.read_head().status == 200
    with pytest.raises(ConnectionResetError):
        client.read_to_end()


def test_a_reset_is_no_end_of_a_body_that_ends_with_the_connection(harness):
    worker = harness.worker(says(OK + b"\r\nhello", then="reset"))
    client = harness.client(harness.router(worker))
    client.send(request())
    assert client.read_head().get("transfer-encoding") == "chunked"
    assert client.read_chunk() == b"hello"
    rest, _ = until_it_breaks(client)
    assert rest == b""


@pytest.mark.parametrize(
    "bad", [b"xyz\r\n", b"5\r\nhelloX\r\n", b"-1\r\n", b"5\nhello\r\n", b"0\r\n X: y\r\n\r\n"]
)
def test_a_bad_chunk_in_an_answer_cuts_it(harness, bad):
    def answer(connection, _message):
        connection.send(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"first"), bad)
        assert connection.ending() in ("eof", "reset")

    worker = harness.worker(answer)
    client = harness.client(harness.router(worker))
    client.send(request())
    client.read_head()
    assert client.read_chunk() == b"first"
    rest, _ = until_it_breaks(client)
    assert b"0\r\n\r\n" not in rest
    worker.connections[0].wait_ended()


# ---- streaming


def test_each_event_arrives_before_the_next_one_is_sent(harness):
    events = [f'data: {{"text": "{number}"}}\n\n'.encode() for number in range(30)] + [b"data: [DONE]\n\n"]
    had = threading.Semaphore(0)

    def stream(connection, _message):
        connection.send(SSE_HEAD)
        for event in events:
            assert had.acquire(timeout=30)
            connection.send(chunk(event))
        connection.send(chunked())

    client = harness.client(harness.router(harness.worker(stream), hold_stream_head="off"))
    client.send(request("POST", "/v1/chat/completions", body=b'{"stream": true}'))
    head = client.read_head()  # arrives although there is no event yet
    assert head.get("content-type") == "text/event-stream; charset=utf-8"
    for event in events:
        had.release()
        assert client.read_chunk() == event
    assert client.read_chunk() == b""
    client.must_be_open()


def test_events_of_a_stream_that_ends_with_the_connection_arrive_at_once(harness):
    had = threading.Semaphore(0)

    def stream(connection, _message):
        connection.send(OK + b"Content-Type: text/event-stream\r\n\r\n")
        for number in range(10):
            assert had.acquire(timeout=30)
            connection.send(b"data: %d\n\n" % number)
        connection.close()

    client = harness.client(harness.router(harness.worker(stream), hold_stream_head="off"))
    client.send(request())
    client.read_head()
    for number in range(10):
        had.release()
        assert client.read_chunk() == b"data: %d\n\n" % number
    assert client.read_chunk() == b""
    client.must_be_open()


def test_pieces_of_a_body_with_a_length_arrive_at_once(harness):
    had = threading.Semaphore(0)

    def stream(connection, _message):
        connection.send(OK + b"Content-Length: 10\r\n\r\n")
        for number in range(10):
            assert had.acquire(timeout=30)
            connection.send(b"%d" % number)

    client = harness.client(harness.router(harness.worker(stream)))
    client.send(request())
    client.read_head()
    for number in range(10):
        had.release()
        assert client.read_exactly(1) == b"%d" % number
    client.must_be_open()


ODD_STREAM = (
    SSE_HEAD
    + chunk("data: ä€😀\n\n".encode())
    + chunk(b": comment\n\n")
    + chunk(b'data: {"usage": {"prompt_tokens": 3}}\r\n\r\n')
    + chunk(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


def test_an_answer_cut_in_two_anywhere_arrives_unchanged(harness):
    at = iter(range(1, len(ODD_STREAM)))

    def answer(connection, _message):
        cut = next(at)
        connection.send(ODD_STREAM[:cut], ODD_STREAM[cut:])

    worker = harness.worker(answer)
    client = harness.client(harness.router(worker))
    plain = (
        'data: ä€😀\n\n: comment\n\ndata: {"usage": {"prompt_tokens": 3}}\r\n\r\ndata: [DONE]\n\n'.encode()
    )
    for _ in range(1, len(ODD_STREAM)):
        assert client.ask("POST", "/v1/chat/completions", body=b"{}").body == plain
    assert len(worker.connections) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_an_answer_in_pieces_of_any_size_arrives_unchanged(harness, size):
    body = bytes(range(256)) * 3
    raws = [response(200, body), OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body[:100], body[100:])]
    worker = harness.worker(
        lambda connection, _: connection.send_in_pieces(raws[len(worker.requests) - 1], size)
    )
    client = harness.client(harness.router(worker))
    for _ in raws:
        assert client.ask().body == body
    assert len(worker.connections) == 1


@pytest.mark.parametrize("size", [0, 4096, 65_536, 65_537, 5_000_000])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_an_answer_of_any_size_arrives_unchanged(harness, rng, size, framing):
    body = rng.randbytes(size)
    cuts = sorted(rng.choices(range(size + 1), k=10))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, size], strict=True) if a < b]

    def answer(connection, _message):
        if framing == "length":
            connection.send(response(200, body))
        elif framing == "chunked":
            connection.send(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*pieces))
        else:
            connection.send(OK + b"\r\n" + body)
            connection.close()

    client = harness.client(harness.router(harness.worker(answer)))
    for _ in range(2):
        assert client.ask().body == body


def test_many_streams_at_once_do_not_mix(harness):
    count, events = 50, 20

    def stream(connection, message):
        connection.send(SSE_HEAD)
        for number in range(events):
            connection.send(chunk(b"data: %s %d\n\n" % (message.body, number)))
        connection.send(chunked())

    router = harness.router(harness.worker(stream), harness.worker(stream), threads=2)
    clients = [harness.client(router) for _ in range(count)]
    for number, client in enumerate(clients):
        client.send(request("POST", "/v1/completions", body=b"%d" % number))
    for number, client in enumerate(clients):
        expected = b"".join(b"data: %d %d\n\n" % (number, event) for event in range(events))
        assert client.read_response().body == expected
