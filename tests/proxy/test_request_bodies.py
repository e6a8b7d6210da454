"""Request bodies: unchanged whatever their framing and pieces, bounded, and streamed where possible."""

import hashlib
import threading

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, chunked, request, response

SMALL = 64 * 1024  # up to here a body is read whole before a worker is asked
REPLAY = 1024 * 1024  # up to here a streamed body is kept, in case it must be sent again
COMPLETIONS = "/v1/completions"


def digest(connection, message):
    """An answer that says what body arrived, and how."""
    text = f"{len(message.body)} {hashlib.sha256(message.body).hexdigest()} {message.framing}"
    connection.send(response(200, text.encode()))


def seen(body: bytes, framing: str) -> bytes:
    return f"{len(body)} {hashlib.sha256(body).hexdigest()} {framing}".encode()


def head(*fields: tuple[str, str]) -> bytes:
    return request("POST", COMPLETIONS, *fields)


CHUNKED_HEAD = head(("Transfer-Encoding", "chunked"))


def cut(data: bytes, rng, count: int) -> list[bytes]:
    cuts = sorted(rng.sample(range(1, len(data)), count))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


SIZES = [0, 1, 4096, SMALL - 1, SMALL, SMALL + 1, 3_000_000]


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
@pytest.mark.parametrize("size", SIZES)
def test_a_body_with_a_length_arrives_unchanged_with_that_length(harness, rng, policy, size):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker, policy=policy))
    body = rng.randbytes(size)
    assert client.ask("POST", COMPLETIONS, body=body).body == seen(body, "length")
    client.must_be_open()


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
@pytest.mark.parametrize("size", SIZES)
def test_a_chunked_body_arrives_unchanged_and_with_a_length_if_it_was_read_whole(harness, rng, policy, size):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker, policy=policy))
    body = rng.randbytes(size)
    pieces = cut(body, rng, 20) if size > 100 else [body] if body else []
    client.send(CHUNKED_HEAD + chunked(*pieces))
    got = client.read_response().body
    if policy == "consistent_hash" or size <= SMALL:
        assert got == seen(body, "length")
    elif size > SMALL + 8192:  # what arrives together with the limit's last byte may end the body
        assert got == seen(body, "chunked")
    else:
        assert got in (seen(body, "length"), seen(body, "chunked"))
    client.must_be_open()


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", [2000, 200_000])
def test_a_body_cut_anywhere_arrives_unchanged(harness, rng, policy, framing, size):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker, policy=policy))
    for _ in range(5):
        body = rng.randbytes(size)
        if framing == "length":
            whole = request("POST", COMPLETIONS, body=body)
        else:
            whole = CHUNKED_HEAD + chunked(*cut(body, rng, 30))
        client.send(*cut(whole, rng, 40))
        got = client.read_response().body
        assert got in (seen(body, "length"), seen(body, framing))
    client.must_be_open()


def test_one_byte_chunks_arrive_unchanged(harness):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker))
    body = bytes(range(256)) * 400
    client.send(CHUNKED_HEAD + chunked(*(body[at : at + 1] for at in range(len(body)))))
    assert client.read_response().body == seen(body, "chunked")


def test_extensions_and_trailers_of_the_client_never_reach_the_worker(harness):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker))
    big = b"b" * SMALL
    for body in (b"hello", big + b"hello"):
        client.send(
            CHUNKED_HEAD
            + b'5;name=value;quoted="a;b"\r\nhello\r\n'
            + (chunk(body[5:]) if body[5:] else b"")
            + b"0;last\r\nX-Trailer: secret\r\nX-Other: 1\r\n\r\n"
        )
        assert client.read_response().body.startswith(b"%d " % len(body))
    received = bytes(worker.connections[0].received)
    for secret in (b"quoted", b"secret", b"X-Other", b"last"):
        assert secret not in received
    client.must_be_open()


def test_bytes_that_look_like_a_request_inside_a_body_stay_a_body(harness):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker))
    body = request("POST", "/smuggled", body=b"0\r\n\r\n")
    assert client.ask("POST", COMPLETIONS, body=body).body == seen(body, "length")
    client.send(CHUNKED_HEAD + chunked(body))
    assert client.read_response().body == seen(body, "length")
    assert {message.target for message in worker.requests} == {COMPLETIONS}


# ---- streaming


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_head_only_policy_streams_a_big_body_before_it_is_complete(harness, framing):
    body = bytes(range(256)) * 4096  # 1 MiB
    half = len(body) // 2
    arrived = threading.Event()

    def read_half(connection):
        connection.read_request_head()
        if framing == "length":
            first = connection.read_exactly(half)
        else:
            first = b""
            while len(first) < half:
                first += connection.read_chunk()
        arrived.set()
        rest = connection.read_exactly(len(body) - half) if framing == "length" else b""
        while framing == "chunked" and (piece := connection.read_chunk()):
            rest += piece
        connection.send(response(200, hashlib.sha256(first + rest).hexdigest().encode()))

    router = harness.router(harness.worker(script=read_half))
    client = harness.client(router)
    if framing == "length":
        client.send(request("POST", COMPLETIONS, body=body)[:-half])
    else:
        client.send(CHUNKED_HEAD + chunk(body[:half]))
    assert arrived.wait(30), "the first half did not get through while the second was missing"
    client.send(body[half:] if framing == "length" else chunked(body[half:]))
    assert client.read_response().body == hashlib.sha256(body).hexdigest().encode()
    client.must_be_open()


def test_each_small_piece_of_a_streamed_body_is_passed_on_at_once(harness):
    pieces = [b"piece %d" % number for number in range(20)]
    body = bytes(SMALL + 1) + b"".join(pieces)
    handed_over = threading.Semaphore(0)

    def read_pieces(connection):
        connection.read_request_head()
        connection.read_exactly(SMALL + 1)
        for piece in pieces:
            handed_over.release()
            assert connection.read_exactly(len(piece)) == piece
        connection.send(response(200, b"all"))

    client = harness.client(harness.router(harness.worker(script=read_pieces)))
    client.send(request("POST", COMPLETIONS, body=body)[: -sum(map(len, pieces))])
    for piece in pieces:
        assert handed_over.acquire(timeout=30)
        client.send(piece)
    assert client.read_response().body == b"all"


def test_a_policy_that_needs_the_body_asks_no_worker_before_it_is_complete(harness):
    worker = harness.worker(digest)
    router = harness.router(worker, policy="consistent_hash")
    client = harness.client(router)
    body = b'{"user": "u"}'.ljust(SMALL * 3)
    whole = request("POST", COMPLETIONS, body=body)
    client.send(whole[:100], whole[100:-1])
    client.wait_until_read()
    assert worker.connections == []
    assert router.loads() == [0]
    client.send(whole[-1:])
    assert client.read_response().body == seen(body, "length")


def test_a_session_header_spares_the_body_from_being_read_first(harness):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker, policy="consistent_hash"))
    body = bytes(SMALL * 3)
    whole = request("POST", COMPLETIONS, ("X-Session-ID", "s"), body=body)
    client.send(whole[:-1])
    worker.wait_for_connections()
    client.send(whole[-1:])
    assert client.read_response().body == seen(body, "length")


def test_a_body_too_long_to_keep_never_goes_to_a_kept_connection(harness):
    # It could not be sent again if the worker happened to close that connection right then.
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker))
    client.ask("POST", COMPLETIONS, body=b"x")
    client.ask("POST", COMPLETIONS, body=bytes(REPLAY))
    assert len(worker.connections) == 1
    client.ask("POST", COMPLETIONS, body=bytes(REPLAY + 1))
    assert len(worker.connections) == 2
    client.ask("POST", COMPLETIONS, body=b"x")
    client.ask("GET", "/x")
    assert len(worker.connections) == 2  # but is kept afterwards


# ---- limits


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
@pytest.mark.parametrize("limit", [10, 100_000])
def test_a_length_over_the_limit_is_refused_before_the_body_is_read(harness, policy, limit):
    worker = harness.worker(digest)
    router = harness.router(worker, policy=policy, max_payload_size=limit)
    client = harness.client(router)
    client.send(request("POST", COMPLETIONS, ("Content-Length", str(limit + 1))))
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (413, "body_too_large")
    assert str(limit + 1) in error_of(answer)["message"]
    assert "--max-payload-size" in error_of(answer)["message"]
    client.must_be_closed()
    assert worker.connections == []
    assert harness.client(router).ask("POST", COMPLETIONS, body=bytes(limit)).status == 200


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
@pytest.mark.parametrize("limit", [10, 100_000])
def test_a_chunked_body_is_cut_off_when_it_grows_over_the_limit(harness, policy, limit):
    worker = harness.worker(digest)
    router = harness.router(worker, policy=policy, max_payload_size=limit)
    client = harness.client(router)
    client.send(CHUNKED_HEAD + chunk(bytes(limit)))
    client.send(chunk(b"x"))  # the end is never sent
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (413, "body_too_large")
    assert answer.get("connection") == "close"
    client.must_be_closed()
    assert worker.requests == []
    allowed = harness.client(router)
    allowed.send(CHUNKED_HEAD + chunked(bytes(limit)))
    assert allowed.read_response().status == 200


def test_a_client_that_goes_on_sending_a_refused_body_still_reads_the_answer(harness):
    # The rest of the body is discarded for a while: closing at once would reset the connection.
    client = harness.client(harness.router(harness.worker(), max_payload_size=1000))
    client.send(request("POST", COMPLETIONS, ("Content-Length", "150000")), bytes(150_000))
    assert client.read_response().status == 413
    client.must_be_closed()


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
@pytest.mark.parametrize("sent", [0, 100, SMALL * 2])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_stalls_is_answered_with_408(harness, policy, framing, sent):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker, policy=policy, client_body_timeout_secs=0.1))
    if framing == "length":
        client.send(request("POST", COMPLETIONS, ("Content-Length", str(SMALL * 3))), bytes(sent))
    else:
        client.send(CHUNKED_HEAD, chunk(bytes(sent)) if sent else b"")
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (408, "body_timeout")
    client.must_be_closed()
    assert worker.requests == []
    for connection in worker.connections:
        connection.wait_ended()


def test_a_slow_body_is_no_stalled_body(harness):
    # Each piece comes within the time, all of them together do not.
    worker = harness.worker(digest)
    router = harness.router(worker, client_body_timeout_secs=0.3, client_head_timeout_secs=0.3)
    client = harness.client(router)
    gate = worker.gate()
    client.send(request("POST", COMPLETIONS, ("Content-Length", "5")))
    for byte in (b"h", b"e", b"l", b"l"):
        gate._event.wait(0.2)  # nobody opens it: this is the pace
        client.send(byte)
    client.send(b"o")
    assert client.read_response().body == seen(b"hello", "length")


def test_a_head_that_stalls_is_answered_with_408(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker, client_head_timeout_secs=0.1))
    client.send(b"GET /x HTTP/1.1\r\nHost:")
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (408, "head_timeout")
    client.must_be_closed()
    assert worker.connections == []


def test_a_connection_that_rests_too_long_is_closed_without_a_word(harness):
    router = harness.router(harness.worker(), client_idle_timeout_secs=0.1)
    client = harness.client(router)
    assert client.ask().status == 200
    client.must_be_closed()


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
@pytest.mark.parametrize("sent", [100, SMALL * 2])
def test_a_bad_chunk_later_in_the_body_is_400_and_no_whole_request_reaches_a_worker(harness, policy, sent):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker, policy=policy))
    client.send(CHUNKED_HEAD + chunk(bytes(sent)))
    client.send(b"5\r\nhelloX\r\n0\r\n\r\n")
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (400, "bad_chunk")
    client.must_be_closed()
    assert worker.requests == []
    for connection in worker.connections:
        connection.wait_ended()
        assert not connection.received.endswith(b"0\r\n\r\n")


# ---- answers that come early


@pytest.mark.parametrize("keep", [False, True])
def test_an_early_answer_to_a_streamed_body_is_relayed_and_the_rest_of_the_body_discarded(harness, keep):
    def refuse(connection):
        connection.read_request_head()
        connection.send(response(413, b"no", *([] if keep else [("Connection", "close")])))
        if keep:
            assert connection.ending() in ("eof", "reset")

    worker = harness.worker(script=refuse)
    client = harness.client(harness.router(worker))
    client.send(request("POST", COMPLETIONS, ("Content-Length", "200000")), bytes(70_000))
    answer = client.read_response()
    assert (answer.status, answer.body, answer.get("connection")) == (413, b"no", "close")
    client.send(bytes(130_000))
    client.must_be_closed()


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
def test_a_worker_that_answers_before_it_has_read_the_body_still_gets_the_right_bytes(harness, rng, policy):
    # What the worker's socket does not take yet has to stay as it is although the answer is under way.
    body = rng.randbytes(8_000_000)

    def answer_early(connection):
        message = connection.read_request_head()
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"early"))
        gate.wait()
        message.body = connection.read_exactly(len(body))
        connection.send(chunked(hashlib.sha256(message.body).hexdigest().encode()))
        assert connection.ending() == "eof"

    worker = harness.worker(script=answer_early, receive_buffer=8192)
    gate = worker.gate()
    router = harness.router(
        worker, *([harness.worker(digest)] if policy == "round_robin" else []), policy=policy
    )
    client = harness.client(router)
    uploading = threading.Thread(target=client.send, args=(request("POST", COMPLETIONS, body=body),))
    uploading.start()
    assert client.read_head().status == 200
    assert client.read_chunk() == b"early"
    # A body of the same size would land where this one lay if that had been given back too early.
    other = harness.client(router)
    other.send(request("POST", COMPLETIONS, body=b"z" * len(body))[:-100])
    other.wait_until_read()
    other.close()
    gate.open()
    assert client.read_chunk() == hashlib.sha256(body).hexdigest().encode()
    assert client.read_chunk() == b""
    uploading.join()
