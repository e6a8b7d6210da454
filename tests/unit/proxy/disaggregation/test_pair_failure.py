"""cpp/proxy/disaggregation/pair_failure.h: whose failure it was. Each way to fail: tests/proxy/test_pd.py."""

import pytest

from tests.fakes.pd import WHOLE
from tests.fakes.wire import response

ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}


def busy(connection, _message):
    connection.send(response(429, b"busy"))


def whole(connection, _message):
    connection.send(response(200, WHOLE))


def retries(router):
    """By what failed: the metric's label and its count."""
    name = "vllm_router_pd_retries_total{"
    lines = [line for line in router.server.metrics_text().splitlines() if line.startswith(name)]
    return {line.split('"')[1]: int(line.split()[-1]) for line in lines if not line.endswith(" 0")}


@pytest.mark.parametrize(
    ("bad", "answer", "what"),
    [
        ("prefill", busy, "prefill"),
        ("decode", busy, "decode"),
        ("decode", lambda connection, _: connection.send(response(500, b"no")), "transfer"),
    ],
    ids=["prefill", "decode", "transfer"],
)
def test_a_retry_is_counted_for_what_failed(harness, bad, answer, what):
    first = harness.worker(answer)
    prefills = [harness.worker(whole), harness.worker(whole)]
    decodes = [harness.worker(), harness.worker()]
    (prefills if bad == "prefill" else decodes)[0] = first
    routing = {
        "prefill_urls": [one.url for one in prefills],
        "decode_urls": [one.url for one in decodes],
    }
    router = harness.router(routing=routing, **ON)
    client = harness.client(router)
    while not first.requests:  # which worker is first is the policy's choice
        assert client.ask("POST", "/v1/completions", body=b'{"prompt":"hi"}').status == 200
    assert retries(router) == {what: 1}
