"""cpp/simulation/simulated_worker.h: real clients, faults, many at once, life and death."""

import contextlib
import itertools
import json
import re
import socket
import time
from collections.abc import Iterator

import anthropic
import openai
import pytest

from tests.rows import for_each_row
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
from vllm_router import _core
from vllm_router.testing import DEFAULT_ENGINE, SimulatedWorker, core_options


@pytest.fixture
def worker() -> Iterator[SimulatedWorker]:
    with SimulatedWorker(**FAST) as worker:
        yield worker


# Real clients.


@pytest.fixture
def openai_client(worker: SimulatedWorker) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{worker.url}/v1", api_key="x", max_retries=0, timeout=30) as client:
        yield client


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


def test_the_openai_client_gets_typed_errors(openai_client):
    with pytest.raises(openai.NotFoundError, match="`gpt-9` does not exist"):
        openai_client.chat.completions.create(model="gpt-9", **CHAT)
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        openai_client.chat.completions.create(model="simulated-model", max_tokens=-1, **CHAT)


def test_the_anthropic_client_gets_messages_and_streams_them(worker):
    question = {"model": "simulated-model", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
    with anthropic.Anthropic(base_url=worker.url, api_key="x", max_retries=0, timeout=30) as client:
        whole = client.messages.create(**question)
        with client.messages.stream(**question) as stream:
            streamed = stream.get_final_message()
        with pytest.raises(anthropic.NotFoundError, match="`claude` does not exist"):
            client.messages.create(**{**question, "model": "claude"})
    assert streamed.content[0].text == whole.content[0].text
    assert (whole.stop_reason, whole.usage.output_tokens) == ("max_tokens", 4)
    assert whole.usage.input_tokens > 0
    assert whole.usage.cache_read_input_tokens == 0
    # mending row 33: as an engine has it, what was cached is not in `input_tokens`; it was in both.
    cached = streamed.usage.cache_read_input_tokens
    assert streamed.usage.input_tokens + cached == whole.usage.input_tokens


# Faults.


def test_fail_first_n_fails_and_then_is_well():
    with SimulatedWorker(**FAST, fail_first_n=2) as worker:
        assert [ask(worker, body=CHAT)[0] for _ in range(4)] == [500, 500, 200, 200]
        eventually(lambda: worker.stats()["failed"] == 2)


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
    with SimulatedWorker(step_ms=3_600_000, crash_after=1) as worker, connect(worker) as first:
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
    eventually(lambda: worker.stats()["failed"] == 1)  # counted once the connection is closed


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
    with SimulatedWorker(**FAST, step_ms=5, threads=2) as worker, contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connect(worker)) for _ in range(streams)]
        for number, stream in enumerate(sockets):
            stream.sendall(
                request_bytes({"prompt": [number] * 20, "stream": True, "max_tokens": 20}, "/v1/completions")
            )
        for stream in sockets:
            assert read_until(stream, b"[DONE]").count(b'"text":" ') == 20
        # A stream is counted after its last byte.
        eventually(lambda: worker.stats()["finished"] == streams)
        stats = worker.stats()
        assert (stats["running"], stats["connections"]) == (0, streams)


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
    worker = SimulatedWorker(step_ms=3_600_000, threads=2)
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
    with pytest.raises(TypeError, match="did you mean step_ms"):
        SimulatedWorker(step_s=5)
    with pytest.raises(TypeError, match="port is not a fault"), SimulatedWorker() as worker:
        worker.set_faults(port=5)


def test_the_default_engine_is_the_core_s_own():
    made, own = core_options({}), _core.SimulatedWorkerOptions()
    for name, value in _core.replay.presets[DEFAULT_ENGINE].items():
        if name != "what":
            assert getattr(made, name) == getattr(own, name) == value


def test_an_engine_is_read_from_a_file_and_what_is_given_by_name_wins(tmp_path):
    path = tmp_path / "engine.yaml"
    path.write_text("prefill_us_per_token: 40\nmax_running: 128\ncache_tokens: 3200\n")
    made = core_options({"engine": str(path), "block_tokens": 32})
    assert made.step_ms == _core.replay.presets["h200_32b"]["step_ms"]  # what a replay takes it for
    assert (made.prefill_us_per_token, made.max_running, made.cache_blocks) == (40, 128, 100)
    made = core_options({"engine": str(path), "cache_blocks": 7, "prefill_us_per_token": 1})
    assert (made.prefill_us_per_token, made.max_running, made.cache_blocks) == (1, 128, 7)


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        ("step_s: 1", ValueError, "has step_s, which is not a setting of an engine; did you mean step_ms?"),
        ("step_ms: soon", TypeError, "step_ms is 'soon'; it must be a number"),
        ("max_running: 0", ValueError, "max_running is 0; it must be from 1"),
        ("cache_tokens: 10", ValueError, "has cache_tokens 10, and a block has 16; set it to one block"),
        ("cache_tokens: many", ValueError, "has cache_tokens 'many'; it must be a whole number"),
        ("engine: h200", ValueError, "engine is 'h200'; it must be one of h200_32b"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_a_sentence(tmp_path, text, error, sentence):
    path = tmp_path / "engine.yaml"
    path.write_text(text)
    with pytest.raises(error, match=re.escape(sentence)):
        SimulatedWorker(engine=str(path))


def test_a_script_is_read_from_a_file(tmp_path):
    path = tmp_path / "script.json"
    path.write_text('[{"text": "Done."}]')
    assert core_options({"tool_script": str(path)}).tool_script == '[{"text": "Done."}]'
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="cannot be read: it is not UTF-8"):
        core_options({"tool_script": str(path)})


@for_each_row(
    ("option", "value", "error"),
    [
        ("threads", 0, ValueError),
        ("step_ms", -1, ValueError),
        ("step_ms", float("nan"), ValueError),
        ("context_ns_per_token", 1e7, ValueError),
        ("speed", 0, ValueError),
        ("max_running", 0, ValueError),
        ("step_tokens", 0, ValueError),
        ("engine", "h200", ValueError),
        ("engine", 5, TypeError),
        ("status_code", 99, ValueError),
        ("block_tokens", 0, ValueError),
        ("max_model_len", 0, ValueError),
        ("cache_blocks", -1, TypeError),
        ("model", 5, TypeError),
        ("tool_script", "[]", ValueError),
        ("tool_script", [], TypeError),
        ("port", 65536, TypeError),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(option, value, error):
    with pytest.raises(error, match=option):
        SimulatedWorker(**{option: value})
