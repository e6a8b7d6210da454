"""Whose fault a 5xx is: what a client cannot do to the fleet, what a worker cannot hide; panic mode."""

import pytest

from tests.fakes.harness import error_of
from tests.fakes.prometheus_text import parse
from tests.fakes.wire import eventually, request, response
from vllm_router import _core_testing as testing

COMPLETIONS = "/v1/completions"
RETRIES = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}
BREAKERS = {"disable_circuit_breaker": False, "cb_timeout_duration_secs": 3600}
SOON = {**BREAKERS, "cb_failure_threshold": 3, "cb_success_threshold": 2}
HONEST, POISON, UNKNOWN = b'{"prompt": "hello"}', b'{"prompt": "fail"}', b'{"prompt": "not implemented"}'


def engine(connection, message):
    """Fails what it is asked to fail, as an engine does that meets a bug."""
    status = 500 if message.body == POISON else 501 if message.body == UNKNOWN else 200
    connection.send(response(status, b""))


def broken(connection, _message):
    connection.send(response(500, b"broken"))


def ask(client, body=HONEST, session=None):
    fields = [("X-Session-ID", session)] if session is not None else []
    return client.ask("POST", COMPLETIONS, *fields, body=body)


class Page:
    """The metrics, once the last exchange has ended."""

    def __init__(self, router):
        router.must_rest()
        self._page = parse(router.server.metrics_text())

    def states(self):
        return [int(value) for value in self._page["vllm_router_cb_state"].series.values()]

    def blamed(self, blame, worker=None):
        series = self._page["vllm_router_server_errors_total"].series.items()
        return sum(
            value
            for labels, value in series
            if dict(labels)["blame"] == blame and worker in (None, dict(labels)["worker"])
        )

    def failures(self):
        series = self._page["vllm_router_cb_outcomes_total"].series.items()
        return sum(value for labels, value in series if dict(labels)["outcome"] == "failure")

    def value(self, name):
        return self._page[f"vllm_router_{name}"].value()


# ---- what a client's requests cannot do


def test_requests_that_make_engines_fail_close_the_fleet_to_nobody(harness):
    """mending row 2: twenty answers of 500 and 501 opened three breakers of three, and everybody got 503."""
    router = harness.router(*[harness.worker(engine) for _ in range(3)], **RETRIES, **BREAKERS)
    client = harness.client(router)
    statuses = [ask(client, POISON if number % 2 else UNKNOWN).status for number in range(20)]
    assert statuses == [501, 500] * 10
    assert [ask(client).status for _ in range(30)] == [200] * 30
    page = Page(router)
    assert page.states() == [0, 0, 0]
    assert page.failures() == 0
    assert page.blamed("request") == 50  # five attempts of each 500; 501 is no worker's fault
    assert page.value("panic_requests_total") == 0


def test_a_client_that_aims_them_at_one_worker_by_its_session_ejects_nobody(harness):
    workers = [harness.worker(engine) for _ in range(3)]
    router = harness.router(*workers, policy="consistent_hash", **RETRIES, **SOON)
    client = harness.client(router)
    for _ in range(12):
        assert ask(client, POISON, session="mallory").status == 500
    assert Page(router).states() == [0, 0, 0]
    assert [ask(client, session=f"user-{number}").status for number in range(30)] == [200] * 30


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
def test_where_nothing_is_retried_half_of_the_fleet_is_left_at_least(harness, policy):
    """mending row 2: the others' share of errors and the maximum ejection share bound what it can do."""
    router = harness.router(*[harness.worker(engine) for _ in range(4)], policy=policy, **SOON)
    client = harness.client(router)
    for number in range(80):
        assert ask(client, POISON, session=f"mallory-{number % 16}").status == 500
        assert ask(client, session=f"user-{number}").status == 200
    assert Page(router).states().count(1) <= 2
    assert Page(router).value("panic_requests_total") == 0


@pytest.mark.parametrize("status", [501, 505])
def test_what_is_not_implemented_counts_against_nobody_and_is_sent_once(harness, status):
    worker = harness.worker(lambda connection, _: connection.send(response(status, b"")))
    router = harness.router(worker, harness.worker(engine), policy="consistent_hash", **RETRIES, **SOON)
    client = harness.client(router)
    session = next(
        name
        for name in map(str, range(100))
        if ask(client, session=name).status == status  # one that lives on the first worker
    )
    seen = len(worker.requests)
    assert [ask(client, session=session).status for _ in range(10)] == [status] * 10
    assert len(worker.requests) == seen + 10
    page = Page(router)
    assert page.failures() == 0
    assert page.states() == [0, 0]


def test_a_client_that_leaves_before_the_retry_has_an_answer_says_nothing(harness):
    def held(connection, _message):
        gate.wait()
        connection.send(response(200, b""))

    failing, slow = harness.worker(broken), harness.worker(held)
    gate = slow.gate()
    router = harness.router(failing, slow, **RETRIES, **{**SOON, "cb_failure_threshold": 1})
    client = harness.client(router)
    client.send(request("POST", COMPLETIONS, body=HONEST))
    gate.wait_for_someone()
    client.close()
    page = Page(router)
    assert page.failures() == page.blamed("worker") == page.blamed("request") == page.blamed("unclear") == 0
    assert page.states() == [0, 0]


def resets(connection):
    connection.reset()


def breaks_off(connection):
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    connection.reset()


def is_silent(connection):
    connection.ending()


@pytest.mark.parametrize("failure", [resets, breaks_off, is_silent])
def test_requests_that_workers_fail_without_a_status_leave_half_of_the_fleet_too(harness, failure):
    """mending row 2: losses, broken responses and silence opened all breakers but one."""

    def worker(connection, message):
        if message.body == POISON:
            failure(connection)
        else:
            engine(connection, message)

    router = harness.router(*[harness.worker(worker) for _ in range(5)], first_byte_timeout_secs=0.05, **SOON)
    for _ in range(40):
        client = harness.client(router)
        client.send(request("POST", COMPLETIONS, ("Connection", "close"), body=POISON))
        client.read_to_end()
    assert Page(router).states().count(1) == 2
    assert Page(router).value("outlier_ejections_overflow_total") > 0
    client = harness.client(router)
    assert [ask(client).status for _ in range(30)] == [200] * 30
    assert Page(router).value("panic_requests_total") == 0


# ---- what a broken worker cannot hide


@pytest.mark.parametrize("retries", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_worker_that_fails_everything_is_ejected_soon(harness, size, retries):
    """mending row 2: in a fleet of any size, whether what it fails is retried or not."""
    failing = harness.worker(broken)
    others = [harness.worker(engine) for _ in range(size - 1)]
    router = harness.router(failing, *others, **(RETRIES if retries else {}), **SOON)
    client = harness.client(router)
    for _ in range(3 * size):
        ask(client)
    assert Page(router).states() == [1] + [0] * (size - 1)
    if size > 1:
        assert len(failing.requests) == 3
        assert [ask(client).status for _ in range(6)] == [200] * 6
        assert len(failing.requests) == 3
        assert Page(router).blamed("worker", failing.url) == 3


def test_at_most_half_of_the_workers_are_ejected_for_what_they_answer(harness):
    """mending row 2: connection failures are not asked for that."""
    workers = [harness.worker(broken) for _ in range(3)]
    router = harness.router(*workers, harness.worker(engine), **RETRIES, **SOON)
    client = harness.client(router)
    assert [ask(client).status for _ in range(12)] == [200] * 12
    page = Page(router)
    assert page.states().count(1) == 2
    assert page.value("outlier_ejections_overflow_total") > 0
    for worker in workers:
        worker.stop()
    assert [ask(client).status for _ in range(6)] == [200] * 6
    assert Page(router).states() == [1, 1, 1, 0]


def test_a_probe_that_a_client_made_fail_does_not_open_the_breaker_again(harness):
    """mending row 2: a probe's 5xx is put down to somebody by the same rules."""
    mood = {"answer": broken}
    failing = harness.worker(lambda connection, message: mood["answer"](connection, message))
    router = harness.router(
        failing, harness.worker(engine), **RETRIES, **{**SOON, "cb_timeout_duration_secs": 0.05}
    )
    client = harness.client(router)
    eventually(lambda: ask(client).status == 200 and Page(router).states()[0] == 1)
    mood["answer"] = engine
    seen = len(failing.requests)
    # When the breaker is due the next request is its probe: the client's, which no worker can serve.
    while len(failing.requests) == seen:
        assert ask(client, POISON).status == 500
    assert Page(router).states()[0] == 2
    assert ask(client, POISON).status == 500
    assert Page(router).states()[0] == 2
    eventually(lambda: ask(client).status == 200 and Page(router).states()[0] == 0)


def test_while_a_failed_probe_waits_for_its_retry_no_other_follows(harness):
    """mending row 2: the pass of a probe is held until it is known whose fault its 5xx was."""
    mood = {"holds": False}

    def hold_one(connection, _message):
        if mood["holds"] and len(failing.requests) > seen:
            mood["holds"] = False
            gate.wait()
        connection.send(response(200, b""))

    failing, healthy = harness.worker(broken), harness.worker(hold_one)
    gate = healthy.gate()
    router = harness.router(failing, healthy, threads=1, **RETRIES, **{**SOON, "cb_timeout_duration_secs": 1})
    client = harness.client(router)
    eventually(lambda: ask(client).status == 200 and Page(router).states()[0] == 1)
    seen = len(failing.requests)
    mood["holds"] = True

    def the_probe_has_failed():
        client.send(request("POST", COMPLETIONS, body=HONEST))
        while not client.readable(0.01):
            if len(failing.requests) > seen:
                return True
        assert client.read_response().status == 200
        return False

    eventually(the_probe_has_failed, "the breaker never came due")
    gate.wait_for_someone()
    other = harness.client(router)
    assert [ask(other).status for _ in range(5)] == [200] * 5
    assert len(failing.requests) == seen + 1
    gate.open()
    assert client.read_response().status == 200
    assert Page(router).states()[0] == 1


# ---- panic mode


class Moody:
    """Resets connections, or answers, as told."""

    def __init__(self):
        self.resets = True

    def __call__(self, connection, message):
        if self.resets:
            connection.reset()
        else:
            engine(connection, message)


def open_all(router, client, workers):
    """Opens the breaker of each, in this order, by a connection it resets while no other is healthy."""
    for open_next in workers:
        for worker in workers:
            router.core.set_healthy(worker.url, worker is open_next)
        assert ask(client).status == 502
    for worker in workers:
        router.core.set_healthy(worker.url, True)
    assert Page(router).states() == [1] * len(workers)


def all_open(harness, count=2, **options):
    """A router all of whose breakers are open since its workers reset connections; they in that order."""
    mood = Moody()
    workers = [harness.worker(mood) for _ in range(count)]
    router = harness.router(*workers, **{**SOON, "cb_failure_threshold": 1, **options})
    client = harness.client(router)
    open_all(router, client, workers)
    return mood, workers, router, client


@pytest.mark.parametrize("policy", testing.policy_names())
def test_where_all_breakers_are_open_a_worker_serves_all_the_same(harness, policy):
    mood, _, router, client = all_open(harness, count=3, policy=policy, **RETRIES)
    mood.resets = False
    assert [ask(client).status for _ in range(12)] == [200] * 12
    assert Page(router).value("panic_requests_total") >= 1
    assert 0 in Page(router).states()


def test_the_worker_whose_breaker_opened_first_serves(harness):
    """mending row 2: and one that fails again goes to the end."""
    mood, workers, router, client = all_open(harness, count=3)
    counts = [len(worker.requests) for worker in workers]
    for number in range(6):
        assert ask(client).status == 502
        counts[number % 3] += 1
        assert [len(worker.requests) for worker in workers] == counts
    mood.resets = False
    assert [ask(client).status for _ in range(3)] == [200] * 3
    # The success made its breaker half-open, two more close it; the others' stay open.
    assert sorted(Page(router).states()) == [0, 1, 1]
    assert Page(router).value("panic_requests_total") == 7


def test_panic_is_logged_once_and_its_end_too(harness, capfd):
    mood, _, router, client = all_open(harness)
    for _ in range(4):
        ask(client)
    mood.resets = False
    for _ in range(4):
        assert ask(client).status == 200
    router.must_rest()
    log = capfd.readouterr().err
    assert log.count("panic mode: no circuit breaker of the 2 healthy workers admits requests") == 1
    assert log.count("panic mode is over") == 1


def test_nobody_healthy_is_503_in_panic_too(harness):
    """mending row 2: the 503 is for a fleet that has nobody left."""
    _, workers, router, client = all_open(harness)
    assert client.ask("GET", "/readiness").status == 200
    answer = client.ask("GET", "/health")
    assert (answer.status, answer.body) == (200, b"Serving. Panic mode: all circuit breakers are open")
    for worker in workers:
        router.core.set_healthy(worker.url, False)
    answer = ask(client)
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers")
    assert client.ask("GET", "/readiness").status == 503
    assert client.ask("GET", "/health").status == 503


def test_panic_keeps_to_the_requests_that_a_worker_may_have(harness):
    """mending row 2: under --max-worker-requests the next in the order serves, and then requests queue."""

    def held(connection, message):
        if mood["resets"]:
            connection.reset()
            return
        gate.wait()
        engine(connection, message)

    mood = {"resets": True}
    workers = [harness.worker(held), harness.worker(held)]
    gate = workers[0].gate()
    router = harness.router(
        *workers, routing={"max_worker_requests": 1}, **{**SOON, "cb_failure_threshold": 1}
    )
    open_all(router, harness.client(router), workers)
    mood["resets"] = False
    clients = [harness.client(router) for _ in range(5)]
    for one in clients:
        one.send(request("POST", COMPLETIONS, body=HONEST))
    for worker in workers:
        worker.wait_for_requests(2)
    assert router.loads() == [1, 1]
    gate.open()
    assert [one.read_response().status for one in clients] == [200] * 5
