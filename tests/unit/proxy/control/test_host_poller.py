"""cpp/proxy/control/host_poller.h: each host once however many ranks; one that left no more."""

from tests.fakes.wire import eventually, response

OFTEN = {"load_poll_interval_secs": 0.02}


def respond(connection, _message):
    """So that a poll is one request."""
    connection.send(response(200, b"vllm:num_requests_running 1\n"))


def test_ranks_of_a_host_are_polled_once(harness):
    worker, other = harness.worker(respond), harness.worker(respond)
    harness.router(f"{worker.url}@0", f"{worker.url}@1", other, policy="least_load", **OFTEN)
    other.wait_for_requests(30)
    # Both are polled in each pass; one that responds late misses a few. Polls by rank would be twice as many.
    assert len(worker.requests) < 1.5 * len(other.requests)


def test_a_host_that_left_the_fleet_is_polled_no_more(harness):
    left, stays = harness.worker(respond), harness.worker(respond)
    router = harness.router(left, stays, policy="least_load", **OFTEN)
    left.wait_for_requests(1)
    router.core.remove_worker(left.url)
    # The poll that had begun ends, and the other's next ones too.
    before = len(stays.requests)
    eventually(lambda: len(stays.requests) > before + 10)
    polled = len(left.requests)
    before = len(stays.requests)
    eventually(lambda: len(stays.requests) > before + 2)
    assert len(left.requests) == polled
