"""Keys that others judge: asked once, remembered as long as they should be, and nobody served by mistake."""

import threading

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import eventually, request, response


def bearer(key):
    return ("Authorization", f"Bearer {key}")


def judge(harness, *good, status=401):
    """Answers 200 for these keys."""

    def answer(connection, message):
        valid = message.get("authorization") in [f"Bearer {key}" for key in good]
        connection.send(response(200 if valid else status, b""))

    return harness.worker(answer)


def asking(harness, *judges, worker=None, **options):
    urls = [judge if isinstance(judge, str) else f"{judge.url}/validate?x=1" for judge in judges]
    return harness.router(worker or harness.worker(), api_key_validation_urls=urls, **options)


def test_a_key_is_valid_when_any_of_them_says_so_and_asked_for_once(harness):
    worker, first, second = harness.worker(), judge(harness, "one"), judge(harness, "two")
    client = harness.client(asking(harness, first, second, worker=worker, api_key="worker-key"))
    for _ in range(3):
        for key, status in [("one", 200), ("two", 200), ("three", 401)]:
            assert client.ask("GET", "/x", bearer(key)).status == status
    assert [len(asked.requests) for asked in (first, second)] == [3, 2]
    seen = first.requests[0]
    assert (seen.method, seen.target) == ("GET", "/validate?x=1")
    for message in worker.requests:
        assert message.get("authorization") == "Bearer worker-key"
    assert all(b"worker-key" not in message.raw for message in first.requests)


def test_no_key_and_no_clear_key_are_refused_without_a_question(harness):
    asked = judge(harness, "one")
    client = harness.client(asking(harness, asked))
    assert error_of(client.ask("GET", "/x"))["code"] == "missing_api_key"
    assert error_of(client.ask("GET", "/x", bearer("one"), bearer("one")))["code"] == "invalid_api_key"
    assert client.ask("GET", "/liveness").status == 200
    assert client.ask("GET", "/workers", bearer("one")).status == 403
    assert asked.requests == []


def test_a_key_of_the_file_is_not_asked_about(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("mine")
    asked = judge(harness, "one")
    client = harness.client(asking(harness, asked, client_api_key_file=str(keys)))
    assert client.ask("GET", "/x", bearer("mine")).status == 200
    assert asked.requests == []
    assert client.ask("GET", "/x", bearer("one")).status == 200


@pytest.mark.parametrize("trouble", ["refused", "500", "slow", "rubbish"])
def test_without_a_verdict_nobody_is_served_and_nothing_is_remembered(harness, trouble):
    def answer(connection, _message):
        if healthy.is_set():
            connection.send(response(200, b""))
        elif trouble == "500":
            connection.send(response(500, b""))
        elif trouble == "rubbish":
            connection.send(b"rubbish\r\n\r\n")
        else:
            connection.ending()

    healthy = threading.Event()
    asked = harness.worker(answer)
    url = harness.refusing_port().url if trouble == "refused" else asked
    router = asking(harness, url, api_key_validation_timeout_secs=0.3)
    client = harness.client(router)
    answered = client.ask("GET", "/x", bearer("one"))
    assert (answered.status, error_of(answered)["code"]) == (503, "key_not_checked")
    assert answered.get("retry-after") == "1"
    if trouble != "refused":
        healthy.set()
        assert client.ask("GET", "/x", bearer("one")).status == 200


def test_a_verdict_is_forgotten_in_time(harness):
    good = ["one"]
    asked = harness.worker(
        lambda connection, message: connection.send(
            response(200 if message.get("authorization").removeprefix("Bearer ") in good else 401, b"")
        )
    )
    client = harness.client(asking(harness, asked, api_key_validation_cache_secs=0.2))
    assert client.ask("GET", "/x", bearer("one")).status == 200
    good.clear()
    eventually(lambda: client.ask("GET", "/x", bearer("one")).status == 401)
    good.append("one")
    eventually(lambda: client.ask("GET", "/x", bearer("one")).status == 200)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_question_is_asked_once_however_many_wait(harness, threads):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b""))

    asked = harness.worker(answer)
    gate = asked.gate()
    router = asking(harness, asked, threads=threads)
    clients = [harness.client(router) for _ in range(20)]
    for client in clients:
        client.send(request("GET", "/x", bearer("one")))
    for client in clients:
        client.wait_until_read()
    asked.wait_for_requests(1)
    gate.open()
    for client in clients:
        assert client.read_response().status == 200
    assert len(asked.requests) == 1


def test_only_so_many_are_asked_at_once_and_the_others_have_their_turn(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b""))

    asked = harness.worker(answer)
    gate = asked.gate()
    router = asking(harness, asked, api_key_validation_timeout_secs=60)
    clients = [harness.client(router) for _ in range(80)]
    for number, client in enumerate(clients):
        client.send(request("GET", "/x", bearer(f"key-{number}")))
    for client in clients:
        client.wait_until_read()
    asked.wait_for_requests(64)
    assert len(asked.connections) == 64
    gate.open()
    for client in clients:
        assert client.read_response().status == 200
    assert len(asked.requests) == 80


def test_a_stop_does_not_wait_for_a_verdict(harness):
    asked = harness.worker(lambda connection, _: connection.ending())
    router = asking(harness, asked, api_key_validation_timeout_secs=100, shutdown_grace_period_secs=0.1)
    router.may_cut = True
    client = harness.client(router)
    client.send(request("GET", "/x", bearer("one")))
    asked.wait_for_requests(1)
    router.shutdown()
    assert client.read_response().status == 503
    router.must_end()


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize("body", [b"", b"{" * 1000], ids=["none", "unread"])
def test_a_client_that_leaves_before_the_verdict_is_let_go_and_the_verdict_kept(harness, how, body):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b""))

    asked = harness.worker(answer)
    gate = asked.gate()
    worker = harness.worker()
    router = asking(harness, asked, worker=worker, api_key_validation_timeout_secs=100)
    leaving, staying = harness.client(router), harness.client(router)
    leaving.send(request("POST", "/x", bearer("one"), ("Content-Length", "100000")) + body)
    asked.wait_for_requests(1)
    staying.send(request("GET", "/x", bearer("one")))
    staying.wait_until_read()
    getattr(leaving, how)()
    if how == "half_close":
        leaving.ending()
    eventually(lambda: "vllm_router_client_connections 1\n" in router.server.metrics_text())
    assert len(asked.connections) == 1
    gate.open()
    assert staying.read_response().status == 200
    assert staying.ask("GET", "/x", bearer("one")).status == 200
    assert (len(asked.requests), len(worker.requests)) == (1, 2)


def test_an_address_that_is_none_is_refused_at_the_start(harness):
    for url in ("auth.example", "ftp://a/x", "http://", "http://a/x#y", "http://a:8000@2/x"):
        with pytest.raises(ValueError, match="--api-key-validation-urls has"):
            harness.router(api_key_validation_urls=[url])
