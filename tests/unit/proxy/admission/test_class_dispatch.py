"""cpp/proxy/admission/class_dispatch.h: what a request counts against its pool comes back, however it ends.

tests/proxy/test_classes.py has the ways on the wire.
"""

import json

import pytest

from tests.fakes.wire import eventually, request, response

BODY = b'{"model":"m","prompt":"hi","stream":true}'
IDLE = "class default gate=idle_only kv_ceiling=0.5\nclass batch kv_ceiling=0.5"


def pool_of(harness, router):
    page = json.loads(harness.client(router).ask("GET", "/admin/admission").body)
    return page["pools"][0]


def at_rest(harness, router):
    pool = pool_of(harness, router)
    return (pool["choosing"], pool["idle_only_prefills"]) == (0, 0)


def answered(connection, _message):
    connection.send(response(200, b"hello"))


def failed(connection, _message):
    connection.send(response(500, b"no"))


def closed(connection, _message):
    connection.end()


@pytest.mark.parametrize(
    ("answer", "status"),
    [(answered, 200), (failed, 500), (closed, 502)],
    ids=["answered", "failed", "closed"],
)
def test_one_that_ends(harness, answer, status):
    router = harness.router(harness.worker(answer), load_poll_interval_secs=0, admission_config=IDLE)
    for _ in range(3):  # each would wait for ever if the one before it still counted
        got = harness.client(router).ask("POST", "/v1/completions", body=BODY)
        assert got.status == status
    eventually(lambda: at_rest(harness, router))


def test_one_whose_client_leaves(harness):
    gate = None

    def wait(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(wait)
    gate = worker.gate()
    router = harness.router(worker, load_poll_interval_secs=0, admission_config=IDLE)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=BODY))
    worker.wait_for_requests(1)
    assert pool_of(harness, router)["idle_only_prefills"] == 1
    client.reset()
    eventually(lambda: at_rest(harness, router))
    gate.open()


def test_one_without_workers(harness):
    router = harness.router(load_poll_interval_secs=0, admission_config=IDLE)
    got = harness.client(router).ask("POST", "/v1/completions", body=BODY)
    assert got.status == 503
    eventually(lambda: at_rest(harness, router))
