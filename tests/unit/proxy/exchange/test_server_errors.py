"""cpp/proxy/exchange/server_errors.h: what the attempts of one request say together.
Attacks are in tests/proxy/.
"""

import pytest

from tests.fakes.prometheus_text import parse
from tests.fakes.wire import request, response

OPTIONS = {
    "disable_retries": False,
    "retry_initial_backoff_ms": 1,
    "retry_max_backoff_ms": 5,
    "retry_max_retries": 3,
}


def answering(status, *fields):
    return lambda connection, _message: connection.send(response(status, b"", *fields))


def resetting(connection, _message):
    connection.reset()


def blames(router, worker):
    """How often the worker's 5xx were put down to the worker, to the request, to nobody."""
    router.must_rest()
    family = parse(router.server.metrics_text())["vllm_router_server_errors_total"]
    return [int(family.value(worker=worker.url, blame=blame)) for blame in ("worker", "request", "unclear")]


def ask_in_order(harness, *answers, **options):
    """One request whose attempts meet these, each at another worker; the status, and blames by attempt."""
    left = list(answers)
    tried = []

    def worker():
        def answer(connection, message):
            tried.append(one)
            left.pop(0)(connection, message)

        one = harness.worker(answer)
        return one

    router = harness.router(*[worker() for _ in answers], **{**OPTIONS, **options})
    status = harness.client(router).ask("POST", "/v1/completions", body=b"{}").status
    return status, [blames(router, one) for one in tried]


@pytest.mark.parametrize("second", [200, 204, 400, 404, 422])
def test_another_worker_s_response_below_500_blames_the_first(harness, second):
    status, blamed = ask_in_order(harness, answering(500), answering(second))
    assert status == second
    assert blamed == [[1, 0, 0], [0, 0, 0]]


def test_so_do_several_that_failed_before_one_that_did_not(harness):
    status, blamed = ask_in_order(harness, answering(500), answering(503), answering(200))
    assert status == 200
    assert blamed == [[1, 0, 0], [1, 0, 0], [0, 0, 0]]


def test_workers_that_agree_blame_the_request(harness):
    status, blamed = ask_in_order(harness, answering(500), answering(502), answering(504))
    assert status == 504
    assert blamed == [[0, 1, 0]] * 3


@pytest.mark.parametrize("other", [answering(429), answering(503, ("Retry-After", "1")), resetting])
def test_what_says_nothing_of_the_request_is_no_second_opinion(harness, other):
    """The worker is judged by its own responses, of which this is the only one."""
    _, blamed = ask_in_order(harness, answering(500), other, retry_max_retries=2)
    assert blamed == [[1, 0, 0], [0, 0, 0]]


def test_a_worker_that_is_asked_again_and_again_has_failed_once(harness):
    worker = harness.worker(answering(500))
    router = harness.router(worker, **OPTIONS)
    assert harness.client(router).ask("POST", "/v1/completions", body=b"{}").status == 500
    assert len(worker.requests) == 3
    assert blames(router, worker) == [1, 0, 0]


def test_a_worker_that_serves_at_last_what_it_failed_before_is_not_blamed(harness):
    statuses = iter([500, 500, 200])
    worker = harness.worker(lambda connection, _: connection.send(response(next(statuses), b"")))
    router = harness.router(worker, **OPTIONS)
    assert harness.client(router).ask("POST", "/v1/completions", body=b"{}").status == 200
    assert blames(router, worker) == [0, 0, 0]


def test_without_a_second_opinion_the_fleet_is_compared_with(harness):
    failing, also_failing = harness.worker(answering(500)), harness.worker(answering(500))
    router = harness.router(failing, also_failing)
    client = harness.client(router)
    for _ in range(6):
        client.send(request("POST", "/v1/completions", body=b"{}"))
        assert client.read_response().status == 500
    assert blames(router, failing) == [1, 0, 2]  # at the first there was nobody to compare with
    assert blames(router, also_failing) == [0, 0, 3]
