"""cpp/simulation/worker_connection.h: endpoints, time, clients that leave, and framing, by raw bytes."""

import json
import socket
import time
import zlib
from collections.abc import Iterator

import pytest

from tests.unit.simulation.wire import (
    CHAT,
    FAST,
    ask,
    connect,
    eventually,
    read_to_end,
    read_until,
    request_bytes,
)
from vllm_router.testing import SimulatedWorker


@pytest.fixture
def worker() -> Iterator[SimulatedWorker]:
    with SimulatedWorker(**FAST) as worker:
        yield worker


# The endpoints of a vLLM server.


def test_unknown_paths_and_methods_get_an_error_of_vllm_shape(worker):
    for method, path, status in (("GET", "/nothing", 404), ("GET", "/v1/completions", 405)):
        got, _, body = ask(worker, path, method=method)
        assert got == status
        assert json.loads(body)["error"]["code"] == status


def test_head_has_no_body(worker):
    status, headers, body = ask(worker, "/v1/models", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


def test_a_second_turn_hits_the_first_with_its_answer(worker):
    first = json.loads(ask(worker, body={**CHAT, "max_tokens": 40})[2])
    turns = [*CHAT["messages"], first["choices"][0]["message"], {"role": "user", "content": "And?"}]
    second = json.loads(ask(worker, body={"messages": turns})[2])
    whole = first["usage"]["total_tokens"]
    assert whole - 16 < second["usage"]["prompt_tokens_details"]["cached_tokens"] <= whole


def test_echo_says_what_arrived(worker):
    body = bytes(range(256)) * 1000
    status, _, answer = ask(worker, "/echo/a%20b?x=1&y", body, "PUT", {"X-Thing": "caf\xe9"})
    echo = json.loads(answer)
    assert status == 200
    assert (echo["method"], echo["path"], echo["query"]) == ("PUT", "/echo/a%20b", "x=1&y")
    assert ["X-Thing", "caf\xe9"] in echo["headers"]
    assert (echo["body_bytes"], echo["body_crc32"]) == (len(body), zlib.crc32(body))
    assert echo["port"] == worker.port


# Time.


def test_a_stream_sends_its_head_before_its_first_token():
    with SimulatedWorker(step_ms=60_000) as worker, connect(worker) as stream:
        stream.sendall(request_bytes({**CHAT, "stream": True}))
        head = read_until(stream, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"text/event-stream; charset=utf-8" in head
        assert b"data:" not in head


def test_a_late_head_comes_with_the_first_token():
    with SimulatedWorker(step_ms=200, late_head=True) as worker, connect(worker) as stream:
        begin = time.monotonic()
        stream.sendall(request_bytes({**CHAT, "stream": True}))
        assert stream.recv(1)
        assert time.monotonic() - begin >= 0.2


def test_tokens_come_no_sooner_than_the_engine_says():
    # 67 tokens: the first step takes 50 ms and 67 more.
    with SimulatedWorker(step_ms=50, prefill_us_per_token=1000) as worker, connect(worker) as stream:
        begin = time.monotonic()
        stream.sendall(request_bytes({**CHAT, "stream": True, "max_tokens": 3}))
        read_until(stream, b'"content":" ')
        assert time.monotonic() - begin >= 0.1
        read_until(stream, b"[DONE]")
        assert time.monotonic() - begin >= 0.2


@pytest.mark.parametrize("stream", [True, False])
def test_several_prompts_of_a_request_are_answered_in_full(stream):
    body = {"prompt": [[n] * 40 for n in range(3)], "n": 2, "max_tokens": 5, "stream": stream}
    with SimulatedWorker(step_ms=1, max_running=2, cache_blocks=8) as worker, connect(worker) as connection:
        connection.sendall(request_bytes(body, "/v1/completions", Connection="close"))
        answer = read_to_end(connection)
        texts = b"".join(part.split(b'"')[0] for part in answer.split(b'"text":"')[1:])
        assert len(texts) == 3 * 2 * 5 * 4
        eventually(lambda: worker.stats()["generation_tokens"] == 3 * 2 * 5)
        assert worker.stats()["prompt_tokens"] == 120


def test_whoever_waits_moves_up_when_the_one_before_leaves():
    # The memory holds one of them. The first would decode for an hour and a half; the second waits for its
    # end, and is woken when it leaves.
    options = {"engine": "instant", "step_ms": 10, "cache_blocks": 40_000, "max_model_len": 1 << 20}
    with SimulatedWorker(**options) as worker, connect(worker) as second:
        first = connect(worker)
        first.sendall(request_bytes({"prompt": "x", "max_tokens": 639_000}, "/v1/completions"))
        eventually(lambda: worker.stats()["running"] == 1)
        second.sendall(request_bytes({"prompt": [7] * 1_600, "max_tokens": 1}, "/v1/completions"))
        eventually(lambda: worker.stats()["waiting"] == 1)
        first.close()
        assert read_until(second, b'"usage"').startswith(b"HTTP/1.1 200")


# Clients that leave.


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", ["close", "half-close", "reset"])
def test_a_client_that_leaves_aborts_its_request_at_once(stream, leave):
    with SimulatedWorker(step_ms=3_600_000) as worker:
        connection = connect(worker)
        connection.sendall(request_bytes({**CHAT, "stream": stream}))
        eventually(lambda: worker.stats()["running"] == 1)
        if leave == "half-close":
            connection.shutdown(socket.SHUT_WR)
        elif leave == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
        else:
            connection.close()
        eventually(lambda: worker.stats()["aborted"] == 1)
        assert worker.stats()["running"] == 0
        assert worker.stats()["finished"] == 0
        connection.close()


def test_a_client_that_leaves_behind_a_pipelined_request_is_noticed():
    with SimulatedWorker(**FAST, step_ms=3_600_000) as worker:
        connection = connect(worker)
        quick = request_bytes({"prompt": "x"}, "/tokenize")
        slow = request_bytes(CHAT)
        # Everything is there before the first answer: the slow request, and the end behind it.
        connection.sendall(quick + quick + slow)
        connection.shutdown(socket.SHUT_WR)
        eventually(lambda: worker.stats()["aborted"] == 1)
        connection.close()


def test_a_client_that_leaves_mid_stream_aborts_and_its_tokens_count():
    with SimulatedWorker(step_ms=20) as worker:
        with connect(worker) as connection:
            connection.sendall(request_bytes({**CHAT, "stream": True, "max_tokens": 100_000}))
            read_until(connection, b'"content":" ')
        eventually(lambda: worker.stats()["aborted"] == 1)
        assert 1 <= worker.stats()["generation_tokens"] < 100_000


def test_a_client_that_reads_slowly_gets_everything():
    # 40 MB of events through a small receive buffer: the worker's socket is full again and again.
    with SimulatedWorker(**FAST) as worker:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", worker.port))
        connection.sendall(request_bytes({**CHAT, "stream": True, "max_tokens": 100_000}, Connection="close"))
        with connection:
            data = read_to_end(connection)
        assert data.count(b'"content":" ') == 100_000
        assert data.endswith(b"0\r\n\r\n")


# Framing of requests.


def test_a_chunked_request_is_read(worker):
    chunked = b"POST /tokenize HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'{"prompt": "abcdefgh"}'
    for piece in (body[:5], body[5:]):
        chunked += f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    with connect(worker) as stream:
        stream.sendall(chunked + b"0\r\n\r\n")
        assert b'"count":2' in read_until(stream, b"}")


def test_expect_100_continue_is_answered(worker):
    with connect(worker) as stream:
        data = request_bytes({"prompt": "abcd"}, "/tokenize", Expect="100-continue")
        head, body = data.split(b"\r\n\r\n")
        stream.sendall(head + b"\r\n\r\n")
        assert read_until(stream, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        stream.sendall(body)
        assert b'"count":1' in read_until(stream, b"}")


def test_a_malformed_head_is_refused_and_the_connection_closed(worker):
    with connect(worker) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: w\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        assert read_to_end(stream).startswith(b"HTTP/1.1 400 ")


def test_http_1_0_gets_a_stream_that_ends_with_the_connection(worker):
    data = request_bytes({**CHAT, "stream": True, "max_tokens": 2}).replace(b"HTTP/1.1", b"HTTP/1.0")
    with connect(worker) as stream:
        stream.sendall(data)
        answer = read_to_end(stream)
    assert b"chunked" not in answer
    assert answer.endswith(b"\n\ndata: [DONE]\n\n")


def test_a_connection_serves_many_requests(worker):
    with connect(worker) as stream:
        for _ in range(5):
            stream.sendall(request_bytes({"prompt": "abcd"}, "/tokenize"))
            read_until(stream, b"}")
        assert worker.stats()["connections"] == 1


def test_an_idle_connection_is_closed_as_by_uvicorn():
    with SimulatedWorker(**FAST, keep_alive_s=0.1) as worker, connect(worker) as stream:
        stream.sendall(request_bytes({"prompt": "abcd"}, "/tokenize"))
        assert read_to_end(stream).endswith(b"}")


@pytest.mark.parametrize("stream", [False, True])
def test_who_has_read_a_response_finds_it_counted(worker, stream):
    before = worker.stats()["finished"]
    for number in range(1, 51):
        assert ask(worker, body={**CHAT, "max_tokens": 2, "stream": stream})[0] == 200
        assert worker.stats()["finished"] == before + number


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_response_in_a_conversation_joins_it(worker, stream):
    def conversations(below, body=None):
        method = "GET" if body is None else "POST"
        status, _, answer = ask(worker, f"/v1/conversations{below}", body, method=method)
        assert status == 200
        return json.loads(answer)

    def tokens(**more):
        answer = ask(worker, "/v1/responses", {"input": "B" * 40, "max_output_tokens": 3} | more)[2]
        return json.loads(answer)["usage"]["input_tokens"]

    name = conversations("", {"items": [{"role": "user", "content": "A" * 400}]})["id"]
    alone = tokens()
    body = {"input": "B" * 40, "max_output_tokens": 3, "conversation": name, "stream": stream}
    ask(worker, "/v1/responses", body)
    items = conversations(f"/{name}/items")["data"]
    assert [item["role"] for item in items] == ["user", "user", "assistant"]
    assert items[1]["content"] == "B" * 40
    assert tokens(conversation={"id": name}) > alone + 100
    status, _, answer = ask(worker, "/v1/responses", {"input": "x", "conversation": "conv_none"})
    assert (status, json.loads(answer)["error"]["code"]) == (404, 404)


def test_conversations_of_two_workers_have_ids_of_the_requests(worker):
    made = [
        json.loads(ask(worker, "/v1/conversations", {}, headers={"x-request-id": name})[2])["id"]
        for name in ("a", "b")
    ]
    assert made == ["conv_a", "conv_b"]
    assert ask(worker, "/v1/conversations", method="GET")[0] == 405
