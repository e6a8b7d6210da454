"""cpp/proxy/admission/program_turn.h: what a request counts of its program comes back, however it ends.

tests/proxy/test_programs.py has the waits.
"""

import re

import pytest

from tests.fakes.wire import eventually, request, response

BODY = b'{"model":"m","prompt":"hi","stream":true}'
NAMED = ("x-session-id", "s")
ON = {"program_admission": "on capacity=1000", "load_poll_interval_secs": 0}


def states(router):
    found = re.findall(r'^vllm_router_programs\{state="(\w+)"\} (\d+)$', router.server.metrics_text(), re.M)
    return {state: int(count) for state, count in found}


def answered(connection, _message):
    connection.send(response(200, b"hello"))


def failed(connection, _message):
    connection.send(response(500, b"no"))


def closed(connection, _message):
    connection.end()


@pytest.mark.parametrize(
    ("answer", "status", "acting"),
    [(answered, 200, 1), (failed, 500, 0), (closed, 502, 0)],
    ids=["answered", "failed", "closed"],
)
@pytest.mark.parametrize("classes", ["", "class batch"], ids=["alone", "with_classes"])
def test_one_that_ends(harness, answer, status, acting, classes):
    router = harness.router(harness.worker(answer), admission_config=classes, **ON)
    for _ in range(2):
        assert harness.client(router).ask("POST", "/v1/completions", NAMED, body=BODY).status == status
    eventually(lambda: states(router) == {"reasoning": 0, "acting": acting, "waiting": 0, "paused": 0})


def test_one_whose_client_leaves(harness):
    gate = None

    def wait(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(wait)
    gate = worker.gate()
    router = harness.router(worker, **ON)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", NAMED, body=BODY))
    worker.wait_for_requests(1)
    assert states(router)["reasoning"] == 1
    client.reset()
    eventually(lambda: not any(states(router).values()))
    gate.open()


def test_one_without_workers(harness):
    router = harness.router(**ON)
    assert harness.client(router).ask("POST", "/v1/completions", NAMED, body=BODY).status == 503
    assert not any(states(router).values())


def test_where_every_worker_is_full_it_waits_for_a_permit(harness):
    gate = None

    def wait(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(wait)
    gate = worker.gate()
    router = harness.router(worker, routing={"max_worker_requests": 1}, **ON)
    clients = [harness.client(router) for _ in range(2)]
    clients[0].send(request("POST", "/v1/completions", NAMED, body=BODY))
    worker.wait_for_requests(1)
    clients[1].send(request("POST", "/v1/completions", NAMED, body=BODY))
    eventually(lambda: "\nvllm_router_queue_requeues_total 1\n" in router.server.metrics_text())
    gate.open()
    for client in clients:
        assert client.read_response().status == 200
