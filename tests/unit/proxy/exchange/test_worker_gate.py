"""cpp/proxy/exchange/worker_gate.h: a closed worker gets no first attempt, and may have a retry.

Priority classes are the one step that has a gate.
"""

import pytest

from tests.fakes.wire import request, response

BODY = b'{"model":"m","prompt":"hi","stream":true}'
IDLE = "class default gate=idle_only kv_ceiling=0.5\nclass batch kv_ceiling=0.5"


@pytest.fixture
def busy(harness):
    """A worker that waits for its gate before each response."""

    def wait(connection, _message):
        worker.opened.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(wait)
    worker.opened = worker.gate()
    return worker


def test_a_closed_worker_gets_a_retry(harness, busy):
    failing = harness.worker(lambda connection, _: connection.send(response(503, b"no")))
    router = harness.router(
        busy,
        failing,
        policy="least_load",
        load_poll_interval_secs=0,
        admission_config=IDLE,
        disable_retries=False,
        retry_max_retries=3,
    )
    first = harness.client(router)
    first.send(request("POST", "/v1/completions", body=BODY))
    busy.wait_for_requests(1)  # the failing one may have had it before
    second = harness.client(router)
    second.send(request("POST", "/v1/completions", body=BODY))
    busy.wait_for_requests(2)  # which is closed for its class, but for a retry
    busy.opened.open()
    for client in (first, second):
        assert client.read_response().status == 200
