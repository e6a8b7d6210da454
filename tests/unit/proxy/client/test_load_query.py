"""cpp/proxy/client/load_query.h: where a worker is polled for its load;
what policies see of it is test_load_poller.py.
"""

from tests.fakes.wire import eventually, response

OFTEN = {"load_poll_interval_secs": 0.05}


def test_a_path_that_is_missing_is_polled_once_and_the_next_one_from_then_on(harness):
    polled = []

    def respond(connection, message):
        polled.append(message.target)
        found = message.target == "/get_load"
        connection.send(response(200, b'{"load": 3}') if found else response(404, b"{}"))

    harness.router(harness.worker(respond), **OFTEN)
    eventually(lambda: polled[-2:] == ["/get_load"] * 2)
    assert polled[:2] == ["/metrics", "/get_load"]


def test_a_failure_is_no_missing_path(harness):
    polled = []

    def respond(connection, message):
        polled.append(message.target)
        connection.send(response(503, b"{}"))

    harness.router(harness.worker(respond), **OFTEN)
    eventually(lambda: len(polled) >= 3)
    assert set(polled) == {"/metrics"}
