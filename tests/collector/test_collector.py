"""Spans as a real collector of OpenTelemetry writes them, beside receipts and the access log; and what its
end does to requests."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.collector.real_collector import CollectedSpan, RealCollector
from tests.fakes.harness import Client, Harness, RunningRouter
from tests.fakes.wire import Message, eventually, response
from vllm_router import _core_testing as testing
from vllm_router.testing import SimulatedWorker

pytestmark = pytest.mark.collector

COMPLETIONS = "/v1/completions"
TRACE = "4bf92f3577b34da6a3ce929d0e0e47"  # and two digits of the request
PARENT = "00f067aa0ba902b7"
SAMPLED = [("traceparent", f"00-{TRACE}ff-{PARENT}-01")]
RETRIES = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 20}
MODEL = "simulated-model"
PROMPT = "one two three four five six " * 60


@pytest.fixture
def simulated(harness: Harness) -> Iterator[Callable[..., SimulatedWorker]]:
    with contextlib.ExitStack() as stack:

        def start(**options: Any) -> SimulatedWorker:
            with harness.keeping_descriptors():
                return stack.enter_context(SimulatedWorker(engine="instant", **options))

        yield start


def traced(harness: Harness, collector: RealCollector, *workers: Any, **options: Any) -> RunningRouter:
    return harness.router(*workers, enable_trace=True, otlp_traces_endpoint=collector.url, **options)


def complete(client: Client, number: int, prompt: str = PROMPT, **more: Any) -> Message:
    """A completion whose request id and trace have its number."""
    fields = [("X-Request-Id", f"request-{number}"), ("traceparent", f"00-{TRACE}{number:02x}-{PARENT}-01")]
    body = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": 4, **more}).encode()
    return client.ask("POST", COMPLETIONS, ("Content-Type", "application/json"), *fields, body=body)


def by_request(spans: list[CollectedSpan]) -> dict[str, tuple[CollectedSpan, list[CollectedSpan]]]:
    """Of each request id the request's span, and those of its attempts in their order."""
    servers = [span for span in spans if span.kind == "server"]
    found = {}
    for server in servers:
        attempts = [span for span in spans if span.kind == "client" and span.parent == server.id]
        assert {attempt.trace for attempt in attempts} <= {server.trace}
        found[server.attributes["request_id"]] = (server, sorted(attempts, key=lambda span: span.begin_ns))
    assert len(found) == len(servers)
    return found


def receipts_of(client: Client, count: int) -> dict[str, dict[str, Any]]:
    """By request id; each is written once its response has been sent."""

    def all_of_them() -> list[dict[str, Any]]:
        return list(json.loads(client.ask("GET", "/admin/receipts").body)["receipts"])

    eventually(lambda: len(all_of_them()) == count, f"there never were {count} receipts")
    return {receipt["request_id"]: receipt for receipt in all_of_them()}


def metric(router: RunningRouter, name: str) -> float:
    lines = router.server.metrics_text().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm_router_{name}"))


class FailsOnce:
    """What workers respond that share it: the first of all requests gets a 503."""

    def __init__(self) -> None:
        self._has_failed = False

    def __call__(self, connection: Any, _message: Message) -> None:
        status = 200 if self._has_failed else 503
        self._has_failed = True
        connection.send(response(status, b"{}", ("Content-Type", "application/json")))


# ---- what it gets


def test_spans_say_what_receipts_and_the_access_log_say(harness, collector, simulated, capfd, monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    worker = simulated()
    testing.configure_log(json=True)
    try:
        router = traced(harness, collector, worker.url, policy="auto", access_log=True)
        client = harness.client(router)
        assert [complete(client, number, PROMPT * (number + 1)).status for number in range(4)] == [200] * 4
        assert complete(client, 4, stream=True, stream_options={"include_usage": True}).status == 200
        assert complete(client, 5, max_tokens=-1).status == 400
        receipts = receipts_of(client, 6)
        spans = [
            span for span in collector_spans(collector, 12) if "request_id" in span.attributes or span.parent
        ]
        client.close()
        router.shutdown()
        router.must_end()
        lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    finally:
        testing.configure_log()
    logged = {line["request_id"]: line for line in lines if line.get("route") == COMPLETIONS}
    found = by_request(spans)
    assert sorted(found) == sorted(receipts) == sorted(logged) == [f"request-{number}" for number in range(6)]
    for number in range(6):
        server, (attempt,) = found[f"request-{number}"]
        receipt, line = receipts[f"request-{number}"], logged[f"request-{number}"]
        assert (server.name, server.trace, server.parent) == (
            f"POST {COMPLETIONS}",
            f"{TRACE}{number:02x}",
            PARENT,
        )
        assert server.resource["service.name"] == "vllm-router"
        assert server.resource["deployment.environment.name"] == "test"
        said = server.attributes
        assert said["http.response.status_code"] == receipt["status"] == line["status"]
        assert said["vllm_router.end"] == receipt["end"] == line["end"]
        assert said["vllm_router.policy"] == receipt["policy"] == line["policy"]
        assert said["vllm_router.reason"] == receipt["reason"] == line["reason"]
        assert said["vllm_router.attempts"] == receipt["attempts"] == line["attempts"] == 1
        assert said.get("vllm_router.prompt_tokens") == receipt["prompt_tokens"] == line.get("prompt_tokens")
        reported = said.get("vllm_router.reported_cached_tokens")
        assert reported == receipt["reported_cached_tokens"] == line.get("cached_tokens")
        assert said.get("vllm_router.predicted_cached_tokens") == receipt["predicted_cached_tokens"]
        assert said["latency_ms"] == pytest.approx(line["total_ms"], abs=0.001)
        assert (server.end_ns - server.begin_ns) / 1e6 == pytest.approx(line["total_ms"], abs=0.001)
        assert attempt.name == "http_client_request"
        assert (
            attempt.attributes["url.full"] == receipt["worker"] + COMPLETIONS == line["worker"] + COMPLETIONS
        )
        assert attempt.attributes["server.port"] == int(worker.url.rpartition(":")[2])
        assert attempt.attributes["vllm.request_phase"] == "inference"
        assert attempt.attributes["http.response.status_code"] == receipt["status"]
        assert attempt.is_error == (receipt["status"] == 400)
        assert not server.is_error  # of a client's mistake
        assert attempt.events == ["first_byte"]
        assert server.begin_ns <= attempt.begin_ns <= attempt.end_ns <= server.end_ns
    # A longer prompt extends the one before, so something was expected and reported.
    assert found["request-3"][0].attributes["vllm_router.predicted_cached_tokens"] > 0
    assert found["request-3"][0].attributes["vllm_router.reported_cached_tokens"] > 0


def collector_spans(collector: RealCollector, at_least: int) -> list[CollectedSpan]:
    """Those of completions alone: requests for receipts are traced, too."""

    def completions() -> list[CollectedSpan]:
        spans = collector.spans
        traces = {span.trace for span in spans if span.name == f"POST {COMPLETIONS}"}
        return [span for span in spans if span.trace in traces]

    eventually(lambda: len(completions()) >= at_least, f"{at_least} spans never came")
    assert len(completions()) == at_least
    return completions()


def test_retries_are_siblings_below_the_request(harness, collector):
    respond = FailsOnce()
    workers = {worker.url: worker for worker in (harness.worker(respond), harness.worker(respond))}
    client = harness.client(traced(harness, collector, *workers.values(), **RETRIES))
    assert complete(client, 0).status == 200
    ((server, (first, second)),) = by_request(collector.wait_for(3)).values()
    assert (server.attributes["vllm_router.attempts"], server.is_error) == (2, False)
    assert (first.attributes["http.response.status_code"], first.is_error) == (503, True)
    assert (second.attributes["http.response.status_code"], second.is_error) == (200, False)
    assert "http.request.resend_count" not in first.attributes
    assert second.attributes["http.request.resend_count"] == 1
    for attempt in (first, second):
        worker = workers.pop(attempt.attributes["url.full"].removesuffix(COMPLETIONS))
        _, trace, span, flags = worker.requests[0].get("traceparent").split("-")
        assert (trace, span, flags) == (server.trace, attempt.id, "01")


def test_a_pair_of_prefill_and_decode_has_a_span_each(harness, collector, simulated):
    prefill, decode = simulated(stage="prefill"), simulated(stage="decode")
    router = traced(
        harness,
        collector,
        policy="least_load",
        routing={"prefill_urls": [prefill.url], "decode_urls": [decode.url]},
    )
    assert complete(harness.client(router), 0).status == 200
    ((server, attempts),) = by_request(collector.wait_for(3)).values()
    phases = {attempt.attributes["vllm.request_phase"]: attempt for attempt in attempts}
    assert phases["prefill"].attributes["url.full"] == prefill.url + COMPLETIONS
    assert phases["decode"].attributes["url.full"] == decode.url + COMPLETIONS
    assert server.trace == f"{TRACE}00"


def test_bytes_that_are_no_utf_8_cost_no_other_span(harness, collector):
    """A collector rejects a whole export for one string that is none."""
    client = harness.client(traced(harness, collector, harness.worker()))
    assert complete(client, 0).status == 200
    assert client.ask("POST", COMPLETIONS, ("tracestate", "a=\xff"), *SAMPLED, body=b"{}").status == 200
    (state,) = {span.state for span in collector.wait_for(4) if span.trace == f"{TRACE}ff"}
    assert state == "a=\N{REPLACEMENT CHARACTER}"


# ---- what its end does to requests


def test_a_collector_that_is_killed_and_restarted_hurts_no_request(harness, collector):
    router = traced(harness, collector, harness.worker())
    client = harness.client(router)

    def ask(first: int, count: int) -> None:
        for number in range(first, first + count):
            assert complete(client, number).status == 200

    ask(0, 20)
    collector.wait_for(40)
    collector.kill()
    ask(20, 20)
    eventually(
        lambda: metric(router, "trace_export_seconds_count") >= 2,
        "it never noticed that the collector is gone",
    )
    ask(40, 20)
    collector.start()
    ask(60, 20)

    def spans_of(result: str) -> float:
        return metric(router, f'trace_spans_total{{result="{result}"}}')

    # What was sent while it was away is sent again for seven seconds, in which it need not have come back.
    eventually(lambda: spans_of("exported") + spans_of("dropped") == 160, "spans are unaccounted for")
    spans = by_request(collector.wait_for(int(spans_of("exported"))))
    assert all(len(attempts) == 1 for _, attempts in spans.values())
    assert {f"request-{number}" for number in [*range(20), *range(60, 80)]} <= spans.keys()
    assert 2 * len(spans) == spans_of("exported")


def test_a_collector_that_stays_away_hurts_no_request(harness, collector):
    router = traced(harness, collector, harness.worker())
    client = harness.client(router)
    collector.kill()
    for number in range(30):
        assert complete(client, number).status == 200
    client.close()
    router.shutdown()
    router.must_end()  # with what it could not send
    assert collector.spans == []
