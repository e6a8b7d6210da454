"""cpp/proxy/disaggregation/engine_poller.h: which engine workers are (tests/proxy/test_pd_auto.py)."""

import json

import pytest

from tests.fakes.pd_engine import EngineWorker, auto_router, ready
from tests.fakes.wire import eventually, response, wait_until_logged


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        b"{}",
        b'{"data": []}',
        b'{"data": [{"id": "m"}]}',
        b'{"data": [{"id": "m", "owned_by": "someone"}]}',
        b'{"data": [{"id": "m", "owned_by": 7}]}',
        b'{"data": [{"id": "m", "owned_by": "vllm"}], "x": "' + b"x" * (1 << 20) + b'"}',
    ],
)
def test_a_list_that_names_no_engine_keeps_its_worker_out_and_no_other(harness, body):
    bad, good = EngineWorker(harness, "vllm"), EngineWorker(harness, "vllm")
    bad.raw = body
    decode = EngineWorker(harness, "vllm")
    router = auto_router(harness, [bad, good], [decode])
    eventually(lambda: ready(harness, router))
    eventually(lambda: bad.lists >= 2)
    client = harness.client(router)
    workers = json.loads(client.ask("GET", "/workers").body)["workers"]
    assert "GET /v1/models" in workers[0]["not_chosen"]
    assert ["not_chosen" in worker for worker in workers] == [True, False, False]
    bad.raw = None
    eventually(lambda: json.loads(client.ask("GET", "/readiness").body)["prefill"]["healthy"] == 2)


def test_an_adapter_may_come_first(harness):
    prefill, decode = EngineWorker(harness, "sglang"), EngineWorker(harness, "sglang")
    prefill.raw = b'{"data": [{"id": "a", "owned_by": "me"}, {"id": "m", "owned_by": "sglang"}]}'
    router = auto_router(harness, [prefill], [decode])
    eventually(lambda: ready(harness, router))


def test_what_is_known_holds_while_a_worker_does_not_respond(harness):
    prefill, decode = EngineWorker(harness, "vllm"), EngineWorker(harness, "vllm")
    router = auto_router(harness, [prefill], [decode])
    eventually(lambda: ready(harness, router))
    prefill.fails = True
    # A rank that joins has the host asked again.
    client = harness.client(router)
    members = {"url": f"{prefill.url}@1", "worker_type": "prefill"}
    before = prefill.lists
    assert client.ask("POST", "/workers", body=json.dumps(members).encode()).status == 200
    eventually(lambda: prefill.lists > before + 1)
    assert json.loads(client.ask("GET", "/readiness").body)["prefill"] == {"healthy": 1, "total": 2}


def test_a_worker_that_never_tells_is_named_in_the_log(harness, capfd):
    prefill, decode = EngineWorker(harness, "someone"), EngineWorker(harness, "vllm")
    auto_router(harness, [prefill], [decode])
    wait_until_logged(capfd, f"worker {prefill.url} has not told which engine it is")


def test_nothing_is_asked_for_another_connector(harness):
    lists = []

    def answer(connection, message):
        lists.append(message.target)
        connection.send(response(200, b"{}"))

    worker = harness.worker(answer)
    router = harness.router(routing={"prefill_urls": [worker.url], "decode_urls": [worker.url + "/d"]})
    eventually(lambda: ready(harness, router))
    assert lists == []
