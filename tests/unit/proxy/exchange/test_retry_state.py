"""cpp/proxy/exchange/retry_state.h: one rule, for one worker and for a pair (tests/proxy/test_retries.py)."""

from pathlib import Path

import pytest

from tests.fakes.wire import response

EXCHANGE = Path(__file__).parents[4] / "cpp" / "proxy" / "exchange"
ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}


def router_of(harness, kind, workers, **options):
    """Workers of one kind, or of prefill in front of a decode worker that serves."""
    if kind == "single":
        return harness.router(*workers, **{**ON, **options})
    routing = {"prefill_urls": [one.url for one in workers], "decode_urls": [harness.worker().url]}
    return harness.router(routing=routing, **{**ON, **options})


def failing(harness, count):
    def answer(connection, _message):
        connection.send(response(503, b"busy"))

    return [harness.worker(answer) for _ in range(count)]


@pytest.fixture(params=["single", "pair"])
def kind(request):
    return request.param


def ask(harness, router):
    return harness.client(router).ask("POST", "/v1/completions", body=b'{"prompt":"hi"}')


def test_the_maximum_of_attempts_holds(harness, kind):
    workers = failing(harness, 4)
    router = router_of(harness, kind, workers, retry_max_retries=3)
    assert ask(harness, router).status == 503
    assert sorted(len(one.requests) for one in workers) == [0, 1, 1, 1]


def test_without_retries_there_is_one_attempt(harness, kind):
    workers = failing(harness, 2)
    router = router_of(harness, kind, workers, disable_retries=True)
    assert ask(harness, router).status == 503
    assert sum(len(one.requests) for one in workers) == 1


def test_the_budget_ends_the_retries_of_all_requests(harness, kind):
    workers = failing(harness, 2)
    router = router_of(
        harness, kind, workers, retry_max_retries=2, retry_budget=0, disable_circuit_breaker=True
    )
    for _ in range(120):
        assert ask(harness, router).status == 503
    sent = sum(len(one.requests) for one in workers)
    assert 120 < sent <= 120 + 101  # ten per second, over ten seconds


def test_what_decides_a_retry_is_used_in_one_file():
    for name in ("retry_budget", "RetryPlan", "retries_exhausted", "RequestLosses", "telemetry.Retried"):
        users = {path.stem for path in EXCHANGE.iterdir() if name in path.read_text(encoding="utf-8")}
        assert users <= {"retry_state", "request_losses", "CMakeLists"}, name
