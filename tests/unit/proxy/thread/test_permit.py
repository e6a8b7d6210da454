"""cpp/proxy/thread/permit.h: how an exchange waits; who is next is the ConcurrencyLimiter's business."""

import time

from tests.fakes.harness import error_of
from tests.fakes.wire import eventually, response
from tests.proxy.test_admission import COMPLETIONS, seats


def test_a_wait_ends_with_the_permit_or_with_the_time(harness):
    gate = None

    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, max_concurrent_requests=1, queue_timeout_secs=0.3)
    first, late = harness.client(router), harness.client(router)
    first.send(COMPLETIONS)
    gate.wait_for_someone()
    since = time.monotonic()
    late.send(COMPLETIONS)
    assert error_of(late.read_response())["code"] == "queue_timeout"
    assert time.monotonic() - since >= 0.3
    late.send(COMPLETIONS)
    eventually(lambda: seats(router) == (1, 1))
    gate.open()
    assert (first.read_response().status, late.read_response().status) == (200, 200)
