"""cpp/proxy/thread/place_queues.h: requests in a feature's queues count for autoscalers."""

import json

import pytest

from tests.fakes.wire import eventually, request, response

BODY = b'{"model":"m","prompt":"hi","stream":true}'


@pytest.mark.parametrize(("of_class", "queued"), [("default", 3), ("batch", 1)])
def test_requests_that_wait_for_a_class_are_queued(harness, of_class, queued):
    gate = None

    def wait(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(wait)
    gate = worker.gate()
    router = harness.router(
        worker, routing={"max_worker_requests": 1}, load_poll_interval_secs=0, admission_config="class batch"
    )
    clients = [harness.client(router) for _ in range(3)]
    for number, client in enumerate(clients):
        client.send(request("POST", "/v1/completions", ("x-smg-priority", of_class), body=BODY))
        if number == 0:
            worker.wait_for_requests(1)

    def told():
        # The one at the worker waits for its first token there.
        return json.loads(harness.client(router).ask("GET", "/scale").body).get("queued")

    eventually(lambda: f'class_queue_depth{{class="{of_class}"}} 2' in router.server.metrics_text())
    eventually(lambda: told() == queued)
    gate.open()
    for client in clients:
        assert client.read_response().status == 200
