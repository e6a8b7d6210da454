"""cpp/proxy/exchange/exchange.h: what is checked first; the steps on the wire are in tests/proxy/."""

from tests.fakes.harness import error_of
from tests.fakes.wire import request, response


def refused(harness, *arguments, **options):
    """The code of the error with which a request is refused that no worker sees."""
    worker = harness.worker()
    client = harness.client(harness.router(worker, max_payload_size=10, **options))
    client.send(request(*arguments))
    code = error_of(client.read_response())["code"]
    assert worker.connections == []
    return code


LONG = ("Content-Length", "100000")
ODD = ("Expect", "something")


def test_the_head_comes_first(harness):
    assert refused(harness, "POST", "/a%00", LONG, ODD) == "bad_request"


def test_then_the_path(harness):
    assert refused(harness, "POST", "/health%00", LONG) == "nul_in_path"


def test_then_the_method(harness):
    assert refused(harness, "POST", "/health", LONG) == "method_not_allowed"


def test_then_the_size_of_the_body(harness):
    assert refused(harness, "POST", "/v1/completions", LONG) == "body_too_large"


def test_a_worker_is_chosen_only_when_the_body_is_there(harness):
    """So that the load is not reserved for a client that is slow to send."""
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    whole = request("POST", "/x", body=b"hello")
    client.send(whole[:-1])
    client.wait_until_read()
    assert router.loads() == [0]
    client.send(whole[-1:])
    assert client.read_response().status == 200


def test_a_request_without_workers_is_refused_after_its_body_was_read(harness):
    client = harness.client(harness.router())
    for _ in range(3):  # so the connection can go on
        client.send(request("POST", "/x", body=b"x" * 50_000))
        assert error_of(client.read_response())["code"] == "no_workers"


def test_the_load_is_there_while_the_worker_has_the_request_and_gone_after(harness):
    loads = []

    def answer(connection, _message):
        loads.append(router.loads())
        connection.send(response(200, b""))

    worker = harness.worker(answer)
    router = harness.router(worker)
    client = harness.client(router)
    for _ in range(3):
        client.ask()
        router.wait_for_load(0)
    assert loads == [[1], [1], [1]]


def test_each_exchange_asks_the_fleet_of_its_moment(harness):
    first, second = harness.worker(), harness.worker()
    router = harness.router(first)
    client = harness.client(router)
    client.ask()
    router.core.remove_worker(first.url)
    router.core.add_worker(second.url)
    client.ask()
    assert (len(first.requests), len(second.requests)) == (1, 1)
