"""cpp/proxy/api/settings.h: other settings while requests run. Each request keeps its own to its end."""

import threading

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, request, response
from vllm_router import _core_testing as testing


@pytest.fixture
def publish():
    return lambda router, **changes: testing.publish_settings(router.server, **changes)


def test_the_next_request_on_the_connection_sees_them(harness, publish):
    router = harness.router(harness.worker())
    client = harness.client(router)
    assert client.ask("POST", body=b"12345").status == 200
    publish(router, max_payload_size=4)
    refused = client.ask("POST", body=b"12345")
    assert refused.status == 413
    assert "accepts at most 4 (--max-payload-size)" in error_of(refused)["message"]
    publish(router, max_payload_size=5)
    assert harness.client(router).ask("POST", body=b"12345").status == 200


def test_what_is_not_changed_stays(harness, publish):
    router = harness.router(harness.worker(), max_payload_size=4)
    publish(router, decision_headers=True)
    assert harness.client(router).ask("POST", body=b"12345").status == 413


def test_a_request_whose_body_is_still_arriving_keeps_its_own(harness, publish):
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    head = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    client.send(head, chunk(b"12345"))
    client.wait_until_read()
    publish(router, max_payload_size=4)
    client.send(chunk(b"67890"), b"0\r\n\r\n")
    assert client.read_response().status == 200
    assert worker.requests[0].body == b"1234567890"
    assert client.ask("POST", body=b"12345").status == 413


def test_a_request_at_its_worker_keeps_its_own(harness, publish):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("GET", "/x"))
    gate.wait_for_someone()
    publish(router, decision_headers=True)
    gate.open()
    assert client.read_response().get("x-vllm-router-reason") is None
    assert client.ask().get("x-vllm-router-reason") is not None


def test_a_connection_that_was_idle_meanwhile_sees_the_last_ones(harness, publish):
    router = harness.router(harness.worker())
    client = harness.client(router)
    client.must_be_open()
    for size in (1, 2, 3):
        publish(router, max_payload_size=size)
    assert client.ask("POST", body=b"123").status == 200
    assert client.ask("POST", body=b"1234").status == 413


def test_every_thread_sees_them(harness, publish):
    router = harness.router(harness.worker(), threads=3)
    clients = [harness.client(router) for _ in range(12)]
    assert {client.ask("POST", body=b"12345").status for client in clients} == {200}
    publish(router, max_payload_size=4)
    assert {client.ask("POST", body=b"12345").status for client in clients} == {413}


def test_admin_endpoints_see_them(harness, publish):
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    publish(router, drain_timeout_secs=7)
    drained = client.ask("POST", f"/admin/drain?url={worker.url}")
    assert (drained.status, b'"timeout_secs":7' in drained.body) == (202, True)


def test_no_request_fails_while_they_change(harness, publish):
    router = harness.router(harness.worker(), threads=2)
    over = threading.Event()

    def change():
        size = 0
        while not over.is_set():
            publish(router, max_payload_size=1000 + (size := (size + 1) % 7))

    changing = threading.Thread(target=change)
    changing.start()
    try:
        client = harness.client(router)
        assert {client.ask("POST", body=b"12345").status for _ in range(300)} == {200}
    finally:
        over.set()
        changing.join()
