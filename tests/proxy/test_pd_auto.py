"""--kv-connector auto: the connector of the engine that workers name in their lists of models."""

import json

import pytest

from tests.fakes.harness import Client, error_of
from tests.fakes.pd import WHOLE
from tests.fakes.pd_engine import EngineWorker, auto_router, ready
from tests.fakes.wire import Message, eventually, request, response, wait_until_logged

PATH = "/v1/completions"
BODY = {"model": "m", "prompt": "hello", "max_tokens": 7}


def ask(client: Client) -> Message:
    client.send(request("POST", PATH, body=json.dumps(BODY).encode()))
    return client.read_response()


def not_chosen(client: Client) -> dict[str, str]:
    workers = json.loads(client.ask("GET", "/workers").body)["workers"]
    return {worker["url"]: worker["not_chosen"] for worker in workers if "not_chosen" in worker}


def test_vllm_takes_nixl(harness):
    prefill, decode = EngineWorker(harness, "vllm"), EngineWorker(harness, "vllm")
    router = auto_router(harness, [prefill], [decode])
    eventually(lambda: ready(harness, router))
    assert ask(harness.client(router)).status == 200
    assert prefill.posts[0]["kv_transfer_params"]["do_remote_decode"] is True
    assert decode.posts[0]["kv_transfer_params"] == json.loads(WHOLE)["kv_transfer_params"]


def test_sglang_meets_in_a_room(harness):
    prefill, decode = EngineWorker(harness, "sglang"), EngineWorker(harness, "sglang")
    router = auto_router(harness, [prefill], [decode])
    eventually(lambda: ready(harness, router))
    assert ask(harness.client(router)).status == 200
    eventually(lambda: len(prefill.posts) == len(decode.posts) == 1)
    assert prefill.posts == decode.posts
    assert prefill.posts[0]["bootstrap_port"] == 8998
    assert "kv_transfer_params" not in prefill.posts[0]


@pytest.mark.parametrize("path", [PATH, "/v1/embeddings"])
def test_until_an_engine_is_known_there_is_no_pair(harness, path):
    prefill, decode = EngineWorker(harness, "vllm"), EngineWorker(harness, "vllm")
    prefill.fails = decode.fails = True
    router = auto_router(harness, [prefill], [decode])
    client = harness.client(router)
    eventually(lambda: prefill.lists > 0 and decode.lists > 0)
    client.send(request("POST", path, body=json.dumps(BODY).encode()))
    message = client.read_response()
    assert message.status == 503
    said = error_of(message)["message"]
    assert said.startswith("No workers available: 0 prefill, 0 decode; 2 workers are not chosen")
    assert "GET /v1/models" in said
    assert not ready(harness, router)
    prefill.fails = decode.fails = False
    eventually(lambda: ready(harness, router), "they were not asked again")
    assert ask(client).status == 200


def test_a_worker_of_another_engine_stays_out(harness, capfd):
    prefill, decode = EngineWorker(harness, "vllm"), EngineWorker(harness, "vllm")
    router = auto_router(harness, [prefill], [decode])
    eventually(lambda: ready(harness, router))
    other = EngineWorker(harness, "sglang")
    client = harness.client(router)
    added = {"url": other.url, "worker_type": "decode"}
    assert client.ask("POST", "/workers", body=json.dumps(added).encode()).status == 200
    eventually(lambda: "another engine" in not_chosen(client).get(other.url, ""))
    assert set(not_chosen(client)) == {other.url}
    wait_until_logged(capfd, f"worker {other.url} is sglang, and the fleet is vllm")
    for _ in range(4):
        assert ask(client).status == 200
    assert other.posts == []


def test_the_other_engine_serves_once_all_of_the_first_are_removed(harness):
    first = [EngineWorker(harness, "vllm"), EngineWorker(harness, "vllm")]
    router = auto_router(harness, first[:1], first[1:])
    eventually(lambda: ready(harness, router))
    others = [EngineWorker(harness, "sglang"), EngineWorker(harness, "sglang")]
    client = harness.client(router)
    for worker, stage in zip(others, ("prefill", "decode"), strict=True):
        added = {"url": worker.url, "worker_type": stage}
        assert client.ask("POST", "/workers", body=json.dumps(added).encode()).status == 200
    eventually(lambda: set(not_chosen(client)) == {worker.url for worker in others})
    router.core.remove_worker(first[0].url)
    assert ask(client).status == 503
    router.core.remove_worker(first[1].url)
    eventually(lambda: ready(harness, router), "the others were never let in")
    assert ask(client).status == 200
    eventually(lambda: len(others[0].posts) == len(others[1].posts) == 1)
    assert "bootstrap_room" in others[0].posts[0]


def test_a_request_that_waits_keeps_the_connector_that_it_began_with(harness):
    """Its retry finds a fleet of the other engine, which would read none of its parameters."""
    begun = harness.worker().gate()

    class Failing(EngineWorker):
        def _answer(self, connection, message):
            if message.method == "POST":
                begun.wait()
                connection.send(response(500, b"no"))
            else:
                super()._answer(connection, message)

    first = [Failing(harness, "vllm"), EngineWorker(harness, "vllm")]
    router = auto_router(
        harness,
        first[:1],
        first[1:],
        disable_retries=False,
        retry_initial_backoff_ms=1,
        retry_max_backoff_ms=2,
    )
    eventually(lambda: ready(harness, router))
    client = harness.client(router)
    client.send(request("POST", PATH, body=json.dumps(BODY).encode()))
    begun.wait_for_someone()
    others = [EngineWorker(harness, "sglang"), EngineWorker(harness, "sglang")]
    admin = harness.client(router)
    for worker, stage in zip(others, ("prefill", "decode"), strict=True):
        added = {"url": worker.url, "worker_type": stage}
        assert admin.ask("POST", "/workers", body=json.dumps(added).encode()).status == 200
    for worker in first:
        router.core.remove_worker(worker.url)
    eventually(lambda: ready(harness, router))
    begun.open()
    assert client.read_response().status == 500
    assert others[0].posts == others[1].posts == []
