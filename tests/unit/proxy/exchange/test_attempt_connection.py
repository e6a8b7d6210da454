"""cpp/proxy/exchange/attempt_connection.h: where an attempt's connection comes from, and where it goes."""

from tests.fakes.harness import error_of


def test_the_connection_serves_the_next_request_if_both_sides_stopped_at_the_end(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    for _ in range(3):
        client.ask()
    assert len(worker.connections) == 1


def test_a_connection_that_is_not_made_in_time_is_an_error_of_its_own(harness):
    client = harness.client(harness.router(harness.silent_port(), connect_timeout_secs=0.1))
    slow = client.ask("POST", "/x")
    refused = harness.client(harness.router(harness.refusing_port())).ask("POST", "/x")
    assert (error_of(slow)["code"], error_of(refused)["code"]) == ("connect_timeout", "worker_unreachable")
