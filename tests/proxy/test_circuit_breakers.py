"""Workers that fail again and again are left alone, probed, and taken back; what counts and what does not."""

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, eventually, request, response

ON = {"disable_circuit_breaker": False, "cb_failure_threshold": 3, "cb_success_threshold": 2}
LATER = {**ON, "cb_timeout_duration_secs": 3600}
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def ask(client, path="/v1/completions", body=b"{}"):
    return client.ask("POST", path, body=body)


def answering(status, *fields):
    return lambda connection, _message: connection.send(response(status, b"", *fields))


def series(router, name):
    """Of the first worker, by the labels beside `worker`."""
    first = router.core.worker_urls[0]
    found = {}
    for line in router.server.metrics_text().splitlines():
        if line.startswith(f"vllm_router_{name}{{"):
            labels, value = line.removeprefix(f"vllm_router_{name}").rsplit(" ", 1)
            pairs = dict(pair.split("=", 1) for pair in labels.strip("{}").split(","))
            if pairs.pop("worker").strip('"') != first:
                continue
            found[tuple(text.strip('"') for text in pairs.values())] = float(value)
    return found


def test_after_enough_failures_in_a_row_a_worker_is_left_alone(harness):
    failing, healthy = harness.worker(answering(500)), harness.worker()
    client = harness.client(harness.router(failing, healthy, **LATER))
    statuses = [ask(client).status for _ in range(12)]
    assert statuses == [500, 200] * 3 + [200] * 6
    assert len(failing.requests) == 3


def test_a_503_that_says_when_to_come_back_does_not_count(harness):
    worker = harness.worker(answering(503, ("Retry-After", "1")))
    client = harness.client(harness.router(worker, **LATER))
    assert [ask(client).status for _ in range(10)] == [503] * 10
    assert len(worker.requests) == 10


def test_clients_that_leave_do_not_count(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker, **LATER)
    for number in range(1, 7):
        client = harness.client(router)
        client.send(request("POST", "/v1/completions", body=b"{}"))
        worker.wait_for_requests(number)
        client.close()
        router.wait_for_load(0)
    router.must_rest()
    assert series(router, "cb_outcomes_total") == {("success",): 0, ("failure",): 0}


@pytest.mark.parametrize("how", ["refused", "reset", "garbage", "silent"])
def test_what_never_became_an_answer_counts(harness, how):
    def script(connection, _message):
        if how == "reset":
            connection.reset()
        elif how == "garbage":
            connection.send(b"not http\r\n\r\n")
        else:
            connection.ending()

    worker = harness.refusing_port() if how == "refused" else harness.worker(script)
    router = harness.router(worker, first_byte_timeout_secs=0.1, **LATER)
    client = harness.client(router)
    codes = [error_of(ask(client))["code"] for _ in range(3)]
    assert codes == [codes[0]] * 3
    router.must_rest()
    assert series(router, "cb_state") == {(): 1}


def test_streams_that_break_off_count_although_each_began_well(harness):
    def cut(connection, _message):
        connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        connection.reset()

    router = harness.router(harness.worker(cut), **LATER)
    for _ in range(3):
        client = harness.client(router)
        client.send(request("POST", "/v1/completions", body=b"{}"))
        assert client.read_head().status == 200
        client.ending()
        router.must_rest()
    assert series(router, "cb_state") == {(): 1}


class Recovering:
    """Answers 500 until told otherwise; then each request waits for the gate."""

    def __init__(self):
        self.failing = True
        self.gate = None

    def __call__(self, connection, _message):
        if not self.failing:
            self.gate.wait()
        connection.send(response(500 if self.failing else 200, b""))


def probe(harness, router, worker):
    """A client whose request is the first one that the worker gets again; those before are answered."""
    seen = len(worker.requests)
    client = harness.client(router)

    def is_out():
        client.send(request("POST", "/v1/completions", body=b"{}"))
        while not client.readable(0.01):
            if len(worker.requests) > seen:
                return True
        assert client.read_response().status == 200
        return False

    eventually(is_out, "the breaker never came due")
    return client


def test_half_open_lets_one_request_through_and_successes_close_it(harness):
    """The worker holds the probe back, and fifty others go elsewhere."""
    recovering = Recovering()
    worker = harness.worker(recovering)
    recovering.gate = worker.gate()
    router = harness.router(worker, harness.worker(), threads=2, cb_timeout_duration_secs=0.2, **ON)
    client = harness.client(router)
    assert [ask(client).status for _ in range(6)] == [500, 200] * 3
    recovering.failing = False
    prober = probe(harness, router, worker)
    for _ in range(50):
        assert ask(harness.client(router)).status == 200
    assert len(worker.requests) == 4
    recovering.gate.open()
    assert prober.read_response().status == 200
    assert [ask(client).status for _ in range(5)] == [200] * 5
    router.must_rest()
    assert sorted(series(router, "cb_state_transitions_total").items()) == [
        (("closed", "open"), 1),
        (("half_open", "closed"), 1),
        (("open", "half_open"), 1),
    ]


def test_a_probe_whose_client_leaves_makes_room_for_the_next(harness):
    recovering = Recovering()
    worker = harness.worker(recovering)
    recovering.gate = worker.gate()
    router = harness.router(worker, harness.worker(), cb_timeout_duration_secs=0.1, **ON)
    client = harness.client(router)
    assert [ask(client).status for _ in range(6)] == [500, 200] * 3
    recovering.failing = False
    probe(harness, router, worker).close()
    router.must_rest()
    recovering.gate.open()
    assert [ask(client).status for _ in range(2)] == [200] * 2
    assert len(worker.requests) == 5


def test_a_worker_that_was_not_there_is_probed_as_soon_as_its_health_check_answers(harness):
    """A few quick crashes would otherwise close a whole fleet for a minute."""
    first = harness.worker()
    # Health checks alone would take the worker out of rotation, and then no request could open its breaker.
    options = {**LATER, "cb_failure_threshold": 1, "health_failure_threshold": 1_000_000}
    router = harness.router(first, harness.worker(), health_check_interval_secs=0.05, **options)
    client = harness.client(router)
    first.stop()

    def is_open():
        ask(client)
        return series(router, "cb_state")[()] == 1

    eventually(is_open, "the breaker never opened")
    again = harness.worker(port=first.port)

    def serves():
        assert ask(client).status == 200
        return any(message.target == "/v1/completions" for message in again.requests)

    eventually(lambda: all(worker.healthy for worker in router.core.workers))
    eventually(serves, "the worker never came back")


def test_retries_move_on_from_a_worker_that_opens(harness):
    failing = [harness.worker(answering(500)) for _ in range(2)]
    healthy = [harness.worker() for _ in range(2)]
    options = {**LATER, "disable_retries": False, "retry_initial_backoff_ms": 1}
    client = harness.client(harness.router(*failing, *healthy, **options))
    assert [ask(client).status for _ in range(20)] == [200] * 20
    assert [len(worker.requests) for worker in failing] == [3, 3]


def test_off_it_counts_and_never_opens(harness):
    worker = harness.worker(answering(500))
    router = harness.router(worker, cb_failure_threshold=3)
    client = harness.client(router)
    assert [ask(client).status for _ in range(10)] == [500] * 10
    router.must_rest()
    assert series(router, "cb_outcomes_total")[("failure",)] == 10
