"""cpp/simulation/worker_state.h: what a worker says about itself."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from tests.unit.simulation.wire import (
    CHAT,
    FAST,
    ask,
    connect,
    eventually,
    get,
    read_until,
    request_bytes,
)
from vllm_router.testing import SimulatedWorker


@pytest.fixture
def worker() -> Iterator[SimulatedWorker]:
    with SimulatedWorker(**FAST) as worker:
        yield worker


def test_health_is_empty_and_well(worker):
    assert ask(worker, "/health", method="GET")[::2] == (200, b"")
    assert ask(worker, "/ping")[::2] == (200, b"")


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
    config = next(line for line in lines if line.startswith("vllm:cache_config_info"))
    assert 'block_size="16"' in config
    assert 'num_gpu_blocks="65536"' in config
    assert config.endswith("} 1.0")
    assert all('engine="0"' in line for line in lines)


def test_load_and_gauges_count_what_is_in_flight():
    # A step of an hour: who came first is in it, two wait for the next one.
    with SimulatedWorker(step_ms=3_600_000) as worker, contextlib.ExitStack() as stack:
        assert get(worker, "/load") == {"server_load": 0}
        for number in range(3):
            stream = stack.enter_context(connect(worker))
            stream.sendall(request_bytes({"prompt": [number] * 8, "stream": True}, "/v1/completions"))
            read_until(stream, b"\r\n\r\n")
        assert get(worker, "/load") == {"server_load": 3}
        assert (worker.stats()["running"], worker.stats()["waiting"]) == (1, 2)


def test_the_usage_of_the_kv_cache_is_what_requests_hold():
    # 5 + 3 tokens are two blocks of 4, of 8; what is merely cached is free, as in vLLM.
    def usage(worker: SimulatedWorker) -> float:
        lines = ask(worker, "/metrics", method="GET")[2].decode().splitlines()
        return float(next(line for line in lines if line.startswith("vllm:kv_cache_usage_perc")).split()[-1])

    body = {"prompt": [1, 2, 3, 4, 5], "max_tokens": 3}
    with SimulatedWorker(engine="instant", step_ms=3_600_000, cache_blocks=8, block_tokens=4) as worker:
        assert usage(worker) == 0
        with connect(worker) as stream:
            stream.sendall(request_bytes(body, "/v1/completions"))
            eventually(lambda: worker.stats()["running"] == 1)
            assert usage(worker) == 0.25
    with SimulatedWorker(**FAST, cache_blocks=8, block_tokens=4) as worker:
        ask(worker, "/v1/completions", body)
        assert worker.stats()["cache_blocks"] == 2
        assert usage(worker) == 0


def test_the_context_is_no_longer_than_the_memory():
    with SimulatedWorker(**FAST, cache_blocks=10, max_model_len=1000) as worker:
        assert get(worker, "/v1/models")["data"][0]["max_model_len"] == 160
        status, _, body = ask(worker, "/v1/completions", {"prompt": [1] * 150, "max_tokens": 11})
        assert status == 400
        assert "maximum context length is 160 tokens. However, you requested 161" in body.decode()
        status, _, body = ask(worker, "/v1/embeddings", {"input": [1] * 161})
        assert status == 400
        assert "you requested 161 tokens in the input for embedding generation" in body.decode()
        # Two that fit one after the other are served, though not at once.
        status, _, body = ask(worker, "/v1/completions", {"prompt": [[1] * 150, [2] * 150], "max_tokens": 10})
        assert status == 200
    with SimulatedWorker(**FAST, cache_blocks=0, max_model_len=1000) as worker:
        assert ask(worker, "/v1/completions", {"prompt": [1] * 990, "max_tokens": 10})[0] == 200


def test_cached_tokens_are_reported_and_can_be_reset(worker):
    def cached() -> int:
        return json.loads(ask(worker, body=CHAT)[2])["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached() == 0
    assert cached() > 0
    assert json.loads(ask(worker, "/reset_prefix_cache")[2]) == {"success": True}
    assert cached() == 0


def test_stats_count_requests_by_path_and_outcome(worker):
    ask(worker, body=CHAT)
    ask(worker, "/v1/completions", {"prompt": 1})
    ask(worker, "/nothing", method="GET")
    stats = worker.stats()
    assert (stats["requests"], stats["finished"], stats["failed"], stats["aborted"]) == (2, 1, 2, 0)
    assert stats["paths"] == {"/v1/chat/completions": 1, "/v1/completions": 1}
    assert stats["generation_tokens"] == 64
    assert get(worker, "/stats").keys() == stats.keys()


def test_connections_are_counted_open_and_since_the_start(worker):
    with connect(worker) as stream:
        stream.sendall(request_bytes({"prompt": "x"}, "/tokenize"))
        read_until(stream, b"}")
        assert (worker.stats()["connections"], worker.stats()["open_connections"]) == (1, 1)
    eventually(lambda: worker.stats()["open_connections"] == 0)
    assert worker.stats()["connections"] == 1


def test_the_model_list_is_that_of_vllm():
    with SimulatedWorker(model='a "b"', max_model_len=999) as worker:
        (model,) = get(worker, "/v1/models")["data"]
    assert (model["id"], model["root"], model["owned_by"]) == ('a "b"', 'a "b"', "vllm")
    assert (model["object"], model["parent"], model["max_model_len"]) == ("model", None, 999)
