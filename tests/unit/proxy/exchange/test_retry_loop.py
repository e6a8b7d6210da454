"""cpp/proxy/exchange/retry_loop.h: one attempt after another.
What failing workers do to it is in tests/proxy/.
"""

from tests.fakes.harness import error_of
from tests.fakes.wire import response


def test_without_a_worker_it_fails_before_any_attempt(harness):
    failed = harness.client(harness.router()).ask()
    assert (failed.status, error_of(failed)["code"]) == (503, "no_workers")


def test_each_attempt_is_made_at_another_worker(harness):
    workers = [
        harness.worker(lambda connection, _: connection.send(response(503, b"busy"))) for _ in range(3)
    ]
    router = harness.router(*workers, disable_retries=False, retry_max_retries=3, retry_initial_backoff_ms=1)
    failed = harness.client(router).ask("POST", "/v1/completions", body=b"{}")
    assert (failed.status, failed.body) == (503, b"busy")
    assert [len(worker.requests) for worker in workers] == [1, 1, 1]


def test_the_last_response_of_a_worker_is_better_than_an_error_of_the_router(harness):
    def reset(connection, _message):
        connection.reset()

    def busy(connection, _message):
        connection.send(response(503, b"busy", ("X-Worker", "first")))

    first, second = harness.worker(busy), harness.worker(reset)
    router = harness.router(
        first,
        second,
        policy="round_robin",
        disable_retries=False,
        retry_max_retries=2,
        retry_initial_backoff_ms=1,
    )
    client = harness.client(router)
    kept = client.ask("POST", "/v1/completions", body=b"{}")
    while not (
        len(first.requests) and len(second.requests)
    ):  # which of the two is first is the policy's choice
        kept = client.ask("POST", "/v1/completions", body=b"{}")
    assert (kept.status, kept.body, kept.get("x-worker")) == (503, b"busy", "first")
