"""cpp/proxy/exchange/exchange.h: the order of the steps. What each does on the wire is in tests/proxy/."""

from tests.fakes.stage import error_of
from tests.fakes.wire import request, response


def refused(stage, *arguments, **options):
    """The code of the error with which a request is refused that no worker sees."""
    worker = stage.worker()
    client = stage.client(stage.router(worker, max_payload_size=10, **options))
    client.send(request(*arguments))
    code = error_of(client.read_response())["code"]
    assert worker.connections == []
    return code


LONG = ("Content-Length", "100000")
ODD = ("Expect", "something")


def test_the_head_comes_first(stage):
    assert refused(stage, "POST", "/a%00", LONG, ODD) == "bad_request"


def test_then_the_path(stage):
    assert refused(stage, "POST", "/health%00", LONG) == "nul_in_path"


def test_then_the_method(stage):
    assert refused(stage, "POST", "/health", LONG) == "method_not_allowed"


def test_then_the_size_of_the_body(stage):
    assert refused(stage, "POST", "/v1/completions", LONG) == "body_too_large"


def test_a_worker_is_chosen_only_when_the_body_is_there(stage):
    """So that the load is not reserved for a client that is slow to send."""
    worker = stage.worker()
    router = stage.router(worker)
    client = stage.client(router)
    whole = request("POST", "/x", body=b"hello")
    client.send(whole[:-1])
    client.wait_until_read()
    assert router.loads() == [0]
    client.send(whole[-1:])
    assert client.read_response().status == 200


def test_a_request_without_workers_is_refused_after_its_body_was_read(stage):
    client = stage.client(stage.router())
    for _ in range(3):  # so the connection can go on
        client.send(request("POST", "/x", body=b"x" * 50_000))
        assert error_of(client.read_response())["code"] == "no_workers"


def test_the_load_is_there_while_the_worker_has_the_request_and_gone_after(stage):
    loads = []

    def answer(connection, _message):
        loads.append(router.loads())
        connection.send(response(200, b""))

    worker = stage.worker(answer)
    router = stage.router(worker)
    client = stage.client(router)
    for _ in range(3):
        client.ask()
        router.wait_for_load(0)
    assert loads == [[1], [1], [1]]


def test_each_exchange_asks_the_fleet_of_its_moment(stage):
    first, second = stage.worker(), stage.worker()
    router = stage.router(first)
    client = stage.client(router)
    client.ask()
    router.core.remove_worker(first.url)
    router.core.add_worker(second.url)
    client.ask()
    assert (len(first.requests), len(second.requests)) == (1, 1)
