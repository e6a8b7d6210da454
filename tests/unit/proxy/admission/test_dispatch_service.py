"""cpp/proxy/admission/dispatch_service.h: what no request tells is found within a tick."""

from tests.fakes.wire import eventually, request, response

BODY = b'{"model":"m","prompt":"hi","stream":true}'


def test_a_worker_that_joins_is_found(harness):
    gate = None

    def wait(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    busy = harness.worker(wait)
    gate = busy.gate()
    fresh = harness.worker()
    router = harness.router(
        busy, routing={"max_worker_requests": 1}, load_poll_interval_secs=0, admission_config="class batch"
    )
    clients = [harness.client(router) for _ in range(2)]
    for client in clients:
        client.send(request("POST", "/v1/completions", body=BODY))
    busy.wait_for_requests(1)
    eventually(lambda: 'class_queue_depth{class="default"} 1' in router.server.metrics_text())
    router.core.add_worker(fresh.url)
    fresh.wait_for_requests(1)
    gate.open()
    for client in clients:
        assert client.read_response().status == 200


def test_a_server_with_classes_ends_though_nothing_waits(harness):
    router = harness.router(harness.worker(), load_poll_interval_secs=0, admission_config="class batch")
    router.shutdown()
    router.must_end()
