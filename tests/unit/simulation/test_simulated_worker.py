"""cpp/simulation/simulated_worker.h over real sockets: with raw bytes, http.client and the openai client."""

import contextlib
import http.client
import itertools
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from vllm_router.testing import SimulatedWorker

FAST = {"ttft_ms": 0.0, "tpot_ms": 0.0, "prefill_us_per_token": 0.0}
CHAT = {"messages": [{"role": "user", "content": "Hello " * 40}]}


@pytest.fixture
def worker() -> Iterator[SimulatedWorker]:
    with SimulatedWorker(**FAST) as worker:
        yield worker


def ask(
    worker: SimulatedWorker,
    path: str = "/v1/chat/completions",
    body: Any = None,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
    with contextlib.closing(connection):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


def get(worker: SimulatedWorker, path: str) -> Any:
    status, _, body = ask(worker, path, method="GET")
    assert status == 200
    return json.loads(body)


def connect(worker: SimulatedWorker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", worker.port), timeout=30)


def request_bytes(body: Any, path: str = "/v1/chat/completions", **headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return (
        f"POST {path} HTTP/1.1\r\nHost: w\r\nContent-Length: {len(data)}\r\n{''.join(lines)}\r\n".encode()
        + data
    )


def read_until(stream: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        piece = stream.recv(65536)
        assert piece, f"closed before {mark!r}: {data!r}"
        data += piece
    return data


def read_to_end(stream: socket.socket) -> bytes:
    return b"".join(iter(lambda: stream.recv(65536), b""))


def eventually(check: Callable[[], bool]) -> None:
    """Another thread will make it true; how soon is not what is tested."""
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)


def client(worker: SimulatedWorker) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{worker.url}/v1", api_key="none", max_retries=0, timeout=30)


# The openai client.


@pytest.fixture
def openai_client(worker: SimulatedWorker) -> Iterator[openai.OpenAI]:
    with client(worker) as made:
        yield made


def test_the_openai_client_chats(openai_client):
    answer = openai_client.chat.completions.create(model="simulated-model", max_tokens=5, **CHAT)
    assert len(answer.choices[0].message.content) == 20
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 5


def test_the_openai_client_streams_the_same_text(openai_client):
    whole = openai_client.chat.completions.create(model="simulated-model", **CHAT)
    with openai_client.chat.completions.create(
        model="simulated-model", stream=True, stream_options={"include_usage": True}, **CHAT
    ) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0


def test_the_openai_client_completes(openai_client):
    whole = openai_client.completions.create(model="simulated-model", prompt=["a", "b"], max_tokens=3)
    with openai_client.completions.create(
        model="simulated-model", prompt="b", max_tokens=3, stream=True
    ) as stream:
        text = "".join(chunk.choices[0].text for chunk in stream)
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert text == whole.choices[1].text


def test_the_openai_client_embeds(openai_client):
    answer = openai_client.embeddings.create(model="simulated-model", input=["a", "b", "a"], dimensions=8)
    vectors = [item.embedding for item in answer.data]
    assert [len(vector) for vector in vectors] == [8, 8, 8]
    assert vectors[0] == vectors[2] != vectors[1]


def test_the_openai_client_uses_the_responses_api(openai_client):
    whole = openai_client.responses.create(model="simulated-model", input="Hello", max_output_tokens=4)
    with openai_client.responses.create(
        model="simulated-model", input="Hello", max_output_tokens=4, stream=True
    ) as stream:
        events = list(stream)
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text


def test_the_openai_client_lists_the_model(openai_client):
    assert [(model.id, model.owned_by) for model in openai_client.models.list()] == [
        ("simulated-model", "vllm")
    ]


def test_the_openai_client_gets_typed_errors(openai_client):
    with pytest.raises(openai.NotFoundError, match="`gpt-9` does not exist"):
        openai_client.chat.completions.create(model="gpt-9", **CHAT)
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        openai_client.chat.completions.create(model="simulated-model", max_tokens=-1, **CHAT)


# The endpoints of a vLLM server.


def test_health_is_empty_and_well(worker):
    assert ask(worker, "/health", method="GET")[::2] == (200, b"")
    assert ask(worker, "/ping")[::2] == (200, b"")


def test_unknown_paths_and_methods_get_an_error_of_vllm_shape(worker):
    for method, path, status in (("GET", "/nothing", 404), ("GET", "/v1/completions", 405)):
        got, _, body = ask(worker, path, method=method)
        assert got == status
        assert json.loads(body)["error"]["code"] == status


def test_an_error_on_the_anthropic_path_has_its_own_shape(worker):
    status, _, body = ask(worker, "/v1/messages", {})
    assert status == 400
    assert json.loads(body)["type"] == "error"


def test_head_has_no_body(worker):
    status, headers, body = ask(worker, "/v1/models", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


def test_tokenize_and_detokenize(worker):
    answer = json.loads(ask(worker, "/tokenize", {"prompt": "Hello"})[2])
    assert answer["count"] == 2
    assert json.loads(ask(worker, "/detokenize", {"tokens": answer["tokens"]})[2]) == {"prompt": "Hello"}


def test_cached_tokens_are_reported_and_can_be_reset(worker):
    def cached() -> int:
        return json.loads(ask(worker, body=CHAT)[2])["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached() == 0
    assert cached() > 0
    assert json.loads(ask(worker, "/reset_prefix_cache")[2]) == {"success": True}
    assert cached() == 0


def test_a_second_turn_hits_the_first_with_its_answer(worker):
    first = json.loads(ask(worker, body={**CHAT, "max_tokens": 40})[2])
    turns = [*CHAT["messages"], first["choices"][0]["message"], {"role": "user", "content": "And?"}]
    second = json.loads(ask(worker, body={"messages": turns})[2])
    whole = first["usage"]["total_tokens"]
    assert whole - 16 < second["usage"]["prompt_tokens_details"]["cached_tokens"] <= whole


def test_metrics_speak_prometheus_with_the_names_of_vllm(worker):
    ask(worker, body=CHAT)
    ask(worker, body=CHAT)
    _, headers, body = ask(worker, "/metrics", method="GET")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    samples = {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}
    stats = worker.stats()
    assert samples["vllm:num_requests_running"] == samples["vllm:num_requests_waiting"] == 0
    assert samples["vllm:prefix_cache_queries_total"] == stats["prompt_tokens"]
    assert samples["vllm:prefix_cache_hits_total"] == stats["cached_tokens"] > 0
    assert 'block_size="16"' in next(line for line in lines if line.startswith("vllm:cache_config_info"))
    assert all('engine="0"' in line for line in lines)


def test_load_and_gauges_count_what_is_in_flight():
    # Three prompts of 8 tokens at 1 s each: the first is computed, two wait for the lane.
    with SimulatedWorker(ttft_ms=0, prefill_us_per_token=125_000) as worker, contextlib.ExitStack() as stack:
        assert get(worker, "/load") == {"server_load": 0}
        for number in range(3):
            stream = stack.enter_context(connect(worker))
            stream.sendall(request_bytes({"prompt": [number] * 8, "stream": True}, "/v1/completions"))
            read_until(stream, b"\r\n\r\n")
        assert get(worker, "/load") == {"server_load": 3}
        assert (worker.stats()["running"], worker.stats()["waiting"]) == (1, 2)


def test_echo_says_what_arrived(worker):
    body = bytes(range(256)) * 1000
    status, _, answer = ask(worker, "/echo/a%20b?x=1&y", body, "PUT", {"X-Thing": "caf\xe9"})
    echo = json.loads(answer)
    assert status == 200
    assert (echo["method"], echo["path"], echo["query"]) == ("PUT", "/echo/a%20b", "x=1&y")
    assert ["X-Thing", "caf\xe9"] in echo["headers"]
    assert (echo["body_bytes"], echo["body_crc32"]) == (len(body), zlib.crc32(body))
    assert echo["port"] == worker.port


def test_a_request_id_becomes_part_of_the_answers_id(worker):
    answer = json.loads(ask(worker, body=CHAT, headers={"X-Request-Id": 'a"b'})[2])
    assert answer["id"] == 'chatcmpl-a"b'


# Time.


def test_a_stream_sends_its_head_before_its_first_token():
    with SimulatedWorker(ttft_ms=60_000) as worker, connect(worker) as stream:
        stream.sendall(request_bytes({**CHAT, "stream": True}))
        head = read_until(stream, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"text/event-stream; charset=utf-8" in head
        assert b"data:" not in head


def test_a_late_head_comes_with_the_first_token():
    with SimulatedWorker(ttft_ms=200, late_head=True) as worker, connect(worker) as stream:
        begin = time.monotonic()
        stream.sendall(request_bytes({**CHAT, "stream": True}))
        assert stream.recv(1)
        assert time.monotonic() - begin >= 0.2


def test_tokens_come_no_sooner_than_the_engine_says():
    with (
        SimulatedWorker(ttft_ms=100, tpot_ms=50, prefill_us_per_token=0) as worker,
        connect(worker) as stream,
    ):
        begin = time.monotonic()
        stream.sendall(request_bytes({**CHAT, "stream": True, "max_tokens": 3}))
        read_until(stream, b'"content":" ')
        assert time.monotonic() - begin >= 0.1
        read_until(stream, b"[DONE]")
        assert time.monotonic() - begin >= 0.2


def test_a_cached_prompt_is_answered_sooner():
    with SimulatedWorker(ttft_ms=0, tpot_ms=0, prefill_us_per_token=5000) as worker:
        times = []
        for _ in range(2):
            begin = time.monotonic()
            ask(worker, body=CHAT)
            times.append(time.monotonic() - begin)
        assert times[0] > 0.3  # 67 tokens
        assert times[1] < times[0] / 2


def test_whoever_waits_moves_up_when_the_one_before_leaves():
    # The first prompt would be computed for 100 s; the second waits behind it.
    with (
        SimulatedWorker(ttft_ms=0, tpot_ms=0, prefill_us_per_token=1000) as worker,
        connect(worker) as second,
    ):
        first = connect(worker)
        first.sendall(request_bytes({"prompt": "x" * 400_000}, "/v1/completions"))
        eventually(lambda: worker.stats()["running"] == 1)
        second.sendall(request_bytes({"prompt": "y"}, "/v1/completions"))
        eventually(lambda: worker.stats()["waiting"] == 1)
        first.close()
        assert read_until(second, b'"usage"').startswith(b"HTTP/1.1 200")


# Clients that leave.


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", ["close", "half-close", "reset"])
def test_a_client_that_leaves_aborts_its_request_at_once(stream, leave):
    with SimulatedWorker(ttft_ms=3_600_000) as worker:
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
    with SimulatedWorker(**{**FAST, "ttft_ms": 3_600_000}) as worker:
        connection = connect(worker)
        quick = request_bytes({"prompt": "x"}, "/tokenize")
        slow = request_bytes(CHAT)
        # Everything is there before the first answer: the slow request, and the end behind it.
        connection.sendall(quick + quick + slow)
        connection.shutdown(socket.SHUT_WR)
        eventually(lambda: worker.stats()["aborted"] == 1)
        connection.close()


def test_a_client_that_leaves_mid_stream_aborts_and_its_tokens_count():
    with SimulatedWorker(ttft_ms=0, tpot_ms=20) as worker:
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


def test_a_request_may_come_in_pieces_of_any_size(worker):
    data = request_bytes({"prompt": "abcd"}, "/tokenize")
    for size in (1, 2, 7, 50):
        with connect(worker) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for begin in range(0, len(data), size):
                stream.sendall(data[begin : begin + size])
            assert b'"count":1' in read_until(stream, b"}")


def test_a_chunked_request_is_read(worker):
    chunked = b"POST /tokenize HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'{"prompt": "abcdefgh"}'
    for piece in (body[:5], body[5:]):
        chunked += f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    with connect(worker) as stream:
        stream.sendall(chunked + b"0\r\n\r\n")
        assert b'"count":2' in read_until(stream, b"}")


def test_pipelined_requests_are_answered_in_order(worker):
    with connect(worker) as stream:
        stream.sendall(b"".join(request_bytes({"prompt": "abcd" * n}, "/tokenize") for n in range(1, 9)))
        data = b""
        while data.count(b'"count":') < 8:
            data += stream.recv(65536)
    counts = [int(part.split(b",")[0]) for part in data.split(b'"count":')[1:]]
    assert counts == list(range(1, 9))


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


# Faults.


def test_fail_first_n_fails_and_then_is_well():
    with SimulatedWorker(**FAST, fail_first_n=2) as worker:
        assert [ask(worker, body=CHAT)[0] for _ in range(4)] == [500, 500, 200, 200]
        assert worker.stats()["failed"] == 2


def test_a_status_code_is_answered_with_retry_after():
    with SimulatedWorker(**FAST, status_code=503, retry_after_s=7) as worker:
        status, headers, body = ask(worker, body=CHAT)
        assert (status, headers["retry-after"]) == (503, "7")
        assert json.loads(body)["error"]["code"] == 503
        assert ask(worker, "/health", method="GET")[0] == 200


def test_faults_can_be_set_and_taken_back(worker):
    worker.set_faults(status_code=429, health_status=503)
    assert ask(worker, body=CHAT)[0] == 429
    assert ask(worker, "/health", method="GET")[0] == 503
    worker.set_faults()
    assert ask(worker, body=CHAT)[0] == 200
    assert ask(worker, "/health", method="GET")[0] == 200


def test_latency_comes_before_the_head():
    with SimulatedWorker(**FAST, latency_ms=150) as worker, connect(worker) as stream:
        begin = time.monotonic()
        stream.sendall(request_bytes({**CHAT, "stream": True}))
        assert stream.recv(1)
        assert time.monotonic() - begin >= 0.15


def test_a_crash_resets_connections_and_closes_the_port():
    with SimulatedWorker(ttft_ms=3_600_000, crash_after=1) as worker, connect(worker) as first:
        first.sendall(request_bytes({**CHAT, "stream": True}))
        read_until(first, b"\r\n\r\n")
        with connect(worker) as second:
            second.sendall(request_bytes(CHAT))
            with pytest.raises(ConnectionResetError):
                first.recv(1)
        assert worker.crashed
        with pytest.raises(ConnectionRefusedError):
            connect(worker)


def test_a_hanging_worker_never_answers_and_notices_the_end(worker):
    worker.set_faults(hang=True)
    with connect(worker) as stream:
        stream.sendall(request_bytes(CHAT))
        eventually(lambda: worker.stats()["requests"] == 1)
        stream.settimeout(0.05)
        with pytest.raises(TimeoutError):
            stream.recv(1)
    eventually(lambda: worker.stats()["aborted"] == 1)


def test_garbage_is_no_http(worker):
    worker.set_faults(garbage=True)
    with connect(worker) as stream:
        stream.sendall(request_bytes(CHAT))
        assert not read_to_end(stream).startswith(b"HTTP/")


@pytest.mark.parametrize("stream", [True, False])
def test_close_early_ends_in_the_middle_of_the_body(worker, stream):
    worker.set_faults(close_early=True)
    with connect(worker) as connection:
        connection.sendall(request_bytes({**CHAT, "stream": stream}))
        head, body = read_to_end(connection).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body
    if stream:
        assert b"[DONE]" not in body
        assert not body.endswith(b"0\r\n\r\n")
    else:
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-l")
        )
        assert 0 < len(body) < length
    assert worker.stats()["failed"] == 1


@pytest.mark.parametrize("count", [0, 1, 20, 300])
@pytest.mark.parametrize("stream", [True, False])
def test_close_after_bytes_sends_exactly_that_many(worker, stream, count):
    worker.set_faults(close_after_bytes=count)
    with connect(worker) as connection:
        connection.sendall(request_bytes({**CHAT, "stream": stream}))
        assert len(read_to_end(connection)) == count


def test_a_request_may_bring_its_own_fault(worker):
    assert ask(worker, body=CHAT, headers={"X-Sim-Status": "418"})[0] == 418
    assert ask(worker, body=CHAT, headers={"x-sim-status": "nonsense"})[0] == 200
    begin = time.monotonic()
    assert ask(worker, body=CHAT, headers={"x-sim-delay-ms": "100"})[0] == 200
    assert time.monotonic() - begin >= 0.1
    with connect(worker) as stream:
        stream.sendall(request_bytes(CHAT, x_sim_close_after_bytes="9"))
        assert read_to_end(stream) == b"HTTP/1.1 "
    assert ask(worker, "/echo", headers={"x-sim-status": "503"})[0] == 503


# Speed, many at once, life and death.


@pytest.mark.parametrize("length", [1, 2, 9, 10, 11, 1024, 100_000])
def test_a_fixed_response_is_json_of_that_length(length):
    with SimulatedWorker(fixed_response_bytes=length) as worker:
        status, _, body = ask(worker, "/v1/chat/completions", b"no json at all")
        assert (status, len(body)) == (200, length)
        json.loads(body)


def test_many_streams_at_once_on_several_threads():
    streams = 200
    with SimulatedWorker(**{**FAST, "tpot_ms": 5}, threads=2) as worker, contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connect(worker)) for _ in range(streams)]
        for number, stream in enumerate(sockets):
            stream.sendall(
                request_bytes({"prompt": [number] * 20, "stream": True, "max_tokens": 20}, "/v1/completions")
            )
        for stream in sockets:
            assert read_until(stream, b"[DONE]").count(b'"text":" ') == 20
        stats = worker.stats()
        assert (stats["finished"], stats["running"], stats["connections"]) == (streams, 0, streams)


def test_answers_do_not_depend_on_threads_or_order(rng):
    prompts = [f"Prompt {n}" for n in range(20)]

    def answers(threads: int) -> dict[str, str]:
        rng.shuffle(prompts)
        with SimulatedWorker(**FAST, threads=threads) as worker:
            return {
                p: json.loads(ask(worker, "/v1/completions", {"prompt": p})[2])["choices"][0]["text"]
                for p in prompts
            }

    assert answers(1) == answers(3)


def test_stop_ends_whatever_is_going_on():
    worker = SimulatedWorker(ttft_ms=3_600_000, threads=2)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connect(worker)) for _ in range(20)]
        for stream in itertools.islice(sockets, 10):
            stream.sendall(request_bytes({**CHAT, "stream": True}))
            read_until(stream, b"\r\n\r\n")
        worker.stop()
        for stream in sockets[:10]:
            with contextlib.suppress(ConnectionResetError):
                assert stream.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(worker)
        worker.stop()


def test_a_worker_that_nobody_keeps_stops_itself():
    port = SimulatedWorker(**FAST).port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_port_in_use_is_an_oserror_that_names_it(worker):
    with pytest.raises(OSError, match=rf"127\.0\.0\.1:{worker.port}: Address already in use"):
        SimulatedWorker(port=worker.port)


def test_an_unknown_option_is_refused_with_the_nearest_name():
    with pytest.raises(TypeError, match="did you mean ttft_ms"):
        SimulatedWorker(ttft=5)
    with pytest.raises(TypeError, match="port is not a fault"), SimulatedWorker() as worker:
        worker.set_faults(port=5)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("threads", 0, ValueError),
        ("ttft_ms", -1, ValueError),
        ("ttft_ms", float("nan"), ValueError),
        ("status_code", 99, ValueError),
        ("block_tokens", 0, ValueError),
        ("max_model_len", 0, ValueError),
        ("cache_blocks", -1, TypeError),
        ("model", 5, TypeError),
        ("port", 65536, TypeError),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(option, value, error):
    with pytest.raises(error, match=option):
        SimulatedWorker(**{option: value})
