"""cpp/proxy/admin/configuration.h: /admin/config and /admin/reload, and the program that answers them."""

import json
import threading

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import request


@pytest.fixture
def router(harness):
    return harness.router(harness.worker())


def test_without_a_program_there_is_nothing_to_reload(harness, router):
    answer = harness.client(router).ask("POST", "/admin/reload")
    assert (answer.status, error_of(answer)["code"]) == (409, "reload_not_available")
    assert harness.client(router).ask("GET", "/admin/config").body == b"{}"


def test_a_call_waits_for_the_program(harness, router):
    configuration, client = router.server.configuration, harness.client(router)
    assert configuration.next(0) is None
    client.send(request("POST", "/admin/reload?dry_run=1"))
    number, dry_run, _ = configuration.next(10)
    assert dry_run is True
    configuration.finish(number, 409, '{"result": "refused"}')
    answer = client.read_response()
    assert (answer.status, json.loads(answer.body)) == (409, {"result": "refused"})
    configuration.finish(number, 200, "")  # it is over, so this is nothing


def test_a_call_may_come_before_the_program_waits_for_one(harness, router):
    configuration, client = router.server.configuration, harness.client(router)
    configuration.describe("{}")
    client.send(request("POST", "/admin/reload"))
    client.wait_until_read()
    number, *_ = configuration.next(10)
    configuration.finish(number, 200, "{}")
    assert client.read_response().status == 200


def test_a_call_of_a_signal_has_no_number_and_is_one(router):
    configuration = router.server.configuration
    assert [configuration.request(), configuration.request()] == [True, True]
    assert configuration.next(10) == (0, False, False)
    configuration.finish(0, 200, "")
    assert configuration.next(0) is None


def test_a_client_that_leaves_does_not_hold_its_place(harness, router):
    configuration = router.server.configuration
    configuration.next(0)
    for _ in range(17):
        client = harness.client(router)
        client.send(request("POST", "/admin/reload"))
        client.wait_until_read()
        client.reset()
    router.must_rest()
    client = harness.client(router)
    client.send(request("POST", "/admin/reload"))
    (number, *_) = configuration.next(10)
    configuration.finish(number, 200, "{}")
    assert client.read_response().status == 200


def test_more_calls_than_places_are_rejected(harness, router):
    configuration = router.server.configuration
    configuration.next(0)
    clients = [harness.client(router) for _ in range(16)]
    for client in clients:
        client.send(request("POST", "/admin/reload"))
    numbers = [configuration.next(10)[0] for _ in clients]
    answer = harness.client(router).ask("POST", "/admin/reload")
    assert (answer.status, error_of(answer)["code"]) == (409, "reload_in_progress")
    for number in numbers:
        configuration.finish(number, 200, "{}")
    assert {client.read_response().status for client in clients} == {200}


def test_the_end_rejects_those_that_wait_but_not_the_one_that_is_carried_out(harness, router):
    configuration = router.server.configuration
    configuration.next(0)
    first, second = harness.client(router), harness.client(router)
    first.send(request("POST", "/admin/reload"))
    number, *_ = configuration.next(10)
    second.send(request("POST", "/admin/reload"))
    second.wait_until_read()
    waiting = threading.Thread(target=configuration.close)
    waiting.start()
    waiting.join()
    answer = second.read_response()
    assert (answer.status, error_of(answer)["code"]) == (409, "shutting_down")
    configuration.finish(number, 200, "{}")
    assert first.read_response().status == 200
    assert (configuration.closed, configuration.next(-1), configuration.request()) == (True, None, False)
    assert harness.client(router).ask("POST", "/admin/reload").status == 409


def test_what_the_program_describes_is_shown(harness, router):
    router.server.configuration.describe('{"generation": 3}')
    client = harness.client(router)
    assert client.ask("GET", "/admin/config").body == b'{"generation": 3}'
    assert client.ask("POST", "/admin/config").status == 405
    assert client.ask("GET", "/admin/reload").status == 405


@pytest.mark.parametrize(
    "query",
    [
        *("?dry_run=yes", "?dry_run=", "?dry_run", "?dry_run=1&dry_run=1", "?dry_run=%"),
        *("?dryrun=1", "?dry%5Frun=1", "?Dry_run=1", "?dry_run=1&force=1", "?x&dry_run=1"),
    ],
)
def test_a_query_that_says_nothing_is_rejected(harness, router, query):
    router.server.configuration.next(0)
    answer = harness.client(router).ask("POST", f"/admin/reload{query}")
    assert answer.status == 400
    assert "dry_run" in error_of(answer)["message"]
    assert router.server.configuration.next(0) is None, "the program was not called"


def test_what_is_misspelt_is_no_reload(harness, router):
    router.server.configuration.next(0)
    answer = harness.client(router).ask("POST", "/admin/reload?dryrun=1")
    assert error_of(answer)["message"] == (
        'The query parameter "dryrun" is unknown here; there is one, dry_run=1, and nothing was reloaded.'
    )
    answer = harness.client(router).ask("POST", "/admin/reload", body=b'{"dry_run": true}')
    assert (answer.status, "takes no body" in error_of(answer)["message"]) == (400, True)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?dry_run=1", True),
        ("?dry_run=true", True),
        ("?dry_run=0", False),
        ("?dry_run=false&", False),
        ("?", False),
    ],
)
def test_words_for_a_dry_run(harness, router, query, expected):
    configuration, client = router.server.configuration, harness.client(router)
    configuration.next(0)
    client.send(request("POST", f"/admin/reload{query}"))
    number, dry_run, _ = configuration.next(10)
    assert dry_run is expected
    configuration.finish(number, 200, "{}")
    assert client.read_response().status == 200


def test_results_are_counted(router):
    configuration = router.server.configuration
    configuration.count("applied", 7)
    configuration.count("invalid", 8)
    text = router.server.metrics_text()
    assert 'vllm_router_config_reloads_total{result="applied"} 1\n' in text
    assert 'vllm_router_config_reloads_total{result="invalid"} 1\n' in text
    assert "vllm_router_config_generation 7\n" in text
