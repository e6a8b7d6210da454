"""Traces of requests on the wire: whose they are, what workers are told, and which spans a collector gets."""

import contextlib
import json

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.fakes.collector import CLIENT, INTERNAL, SERVER, Collector, attributes_of
from tests.fakes.wire import eventually, request, response
from vllm_router.testing import SimulatedWorker

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-01")
UNSAMPLED = ("traceparent", f"00-{TRACE}-{PARENT}-00")
STATE = ("tracestate", "vendor=1")
BAGGAGE = ("baggage", "user=7")
COMPLETIONS = "/v1/completions"
ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 20}
MODEL = "simulated-model"


@pytest.fixture
def collector(harness):
    return Collector(harness)


@pytest.fixture
def traced(harness, collector):
    """A router of these workers, and its client."""

    def start(*workers, **options):
        options = {"enable_trace": True, "otlp_traces_endpoint": collector.url, **options}
        return harness.client(harness.router(*workers, **options))

    return start


def parts_of(message):
    """Version, trace id, span id and flags of what a worker was told."""
    return message.get("traceparent").split("-")


def metric(router, name):
    lines = router.server.metrics_text().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm_router_{name}"))


def by_kind(spans, kind):
    return [span for span in spans if span.kind == kind]


# ---- whose trace it is


def test_a_client_s_trace_goes_on_through_the_router_to_the_worker(harness, collector, traced):
    worker = harness.worker()
    client = traced(worker)
    assert client.ask("POST", COMPLETIONS, SAMPLED, STATE, BAGGAGE, body=b"{}").status == 200
    spans = collector.wait_for(2)
    (server,), (attempt,) = by_kind(spans, SERVER), by_kind(spans, CLIENT)
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert (server.parent_span_id.hex(), attempt.parent_span_id) == (PARENT, server.span_id)
    assert (server.trace_state, server.name) == ("vendor=1", f"POST {COMPLETIONS}")
    assert parts_of(worker.requests[0]) == ["00", TRACE, attempt.span_id.hex(), "01"]
    assert (worker.requests[0].get("tracestate"), worker.requests[0].get("baggage")) == ("vendor=1", "user=7")
    assert server.start_time_unix_nano <= attempt.start_time_unix_nano
    assert attempt.end_time_unix_nano <= server.end_time_unix_nano
    assert attributes_of(attempt)["url.full"] == worker.url + COMPLETIONS


def test_a_request_without_a_trace_starts_one(harness, collector, traced):
    worker = harness.worker()
    client = traced(worker)
    for _ in range(2):
        assert client.ask("GET", "/x?secret=1").status == 200
    spans = collector.wait_for(4)
    servers = by_kind(spans, SERVER)
    assert [span.parent_span_id for span in servers] == [b"", b""]
    told = [parts_of(message) for message in worker.requests]
    assert [trace for _, trace, _, _ in told] == [span.trace_id.hex() for span in servers]
    assert told[0][1] != told[1][1]
    assert not any("secret" in str(span) for span in spans)


@pytest.mark.parametrize(
    "fields",
    [
        [("traceparent", f"00-{TRACE.upper()}-{PARENT}-01")],
        [("traceparent", f"00-{TRACE}-{'0' * 16}-01")],
        [("traceparent", "")],
        [SAMPLED, SAMPLED],
    ],
    ids=["upper_case", "no_span", "empty", "twice"],
)
def test_a_context_that_is_none_is_counted_and_not_passed_on(harness, collector, fields):
    worker = harness.worker()
    router = harness.router(worker, enable_trace=True, otlp_traces_endpoint=collector.url)
    assert harness.client(router).ask("GET", "/x", *fields, STATE).status == 200
    server = by_kind(collector.wait_for(2), SERVER)[0]
    assert (server.parent_span_id, server.trace_state) == (b"", "")
    assert server.trace_id.hex() != TRACE
    assert parts_of(worker.requests[0])[1] == server.trace_id.hex()
    assert worker.requests[0].get("tracestate") is None
    assert metric(router, "trace_context_invalid_total") == 1


def test_a_tracestate_that_is_too_long_is_dropped(harness, collector, traced):
    worker = harness.worker()
    client = traced(worker)
    for length, passes in ((512, True), (513, False)):
        state = "a=" + "x" * (length - 2)
        assert client.ask("GET", "/x", SAMPLED, ("tracestate", state)).status == 200
        assert worker.requests[-1].get("tracestate") == (state if passes else None)
    collector.wait_for(4)


def test_without_tracing_all_of_it_passes_as_it_is(harness, collector):
    worker = harness.worker()
    fields = [("traceparent", "00-1-2-01"), ("tracestate", "x" * 600), BAGGAGE]
    client = harness.client(harness.router(worker, otlp_traces_endpoint=collector.url))
    assert client.ask("GET", "/x", *fields).status == 200
    assert [(name, value) for name, value in worker.requests[0].fields if (name, value) in fields] == fields


# ---- sampling and excluded paths


@pytest.mark.parametrize(("field", "ratio", "kept"), [(UNSAMPLED, 1.0, False), (SAMPLED, 0.0, True)])
def test_the_client_decides_about_its_trace(harness, collector, field, ratio, kept):
    worker = harness.worker()
    router = harness.router(
        worker, enable_trace=True, otlp_traces_endpoint=collector.url, otel_sampling_ratio=ratio
    )
    client = harness.client(router)
    assert client.ask("GET", "/x", field).status == 200
    assert client.ask("GET", "/x").status == 200  # starts one, of which the ratio decides
    spans = collector.wait_for(2)
    assert {span.trace_id.hex() == TRACE for span in spans} == {kept}
    told = [parts_of(message) for message in worker.requests]
    assert [flags for _, _, _, flags in told] == (["01", "00"] if kept else ["00", "01"])
    assert told[0][1] == TRACE
    assert told[0][2] != PARENT
    assert metric(router, 'trace_spans_total{result="sampled_out"}') == 1


def test_excluded_paths_are_not_traced(harness, collector, traced):
    worker = harness.worker()
    client = traced(worker, otel_excluded_paths=["/health", "/quiet"])
    for target in ("/health", "/quiet", "/quiet?x=1"):
        client.ask("GET", target, SAMPLED)
    assert [message.get("traceparent") for message in worker.requests] == [SAMPLED[1]] * len(worker.requests)
    assert client.ask("GET", "/liveness").status == 200  # excluded by default, and the list replaces it
    assert client.ask("GET", "/quiet/not", SAMPLED).status == 200
    names = [span.name for span in collector.wait_for(3)]
    assert names == ["GET /liveness", "GET", "http_client_request"]


# ---- attempts


def test_retries_are_siblings_with_ids_of_their_own(harness, collector, traced):
    failing = harness.worker(lambda connection, _message: connection.send(response(503, b"no")))
    healthy = harness.worker()
    client = traced(failing, healthy, **ON)
    assert client.ask("POST", COMPLETIONS, SAMPLED, body=b"{}").status == 200
    spans = collector.wait_for(3)
    (server,), (first, second) = by_kind(spans, SERVER), by_kind(spans, CLIENT)
    assert [span.parent_span_id for span in (first, second)] == [server.span_id] * 2
    assert [parts_of(worker.requests[0])[2] for worker in (failing, healthy)] == [
        span.span_id.hex() for span in (first, second)
    ]
    assert [attributes_of(span)["http.response.status_code"] for span in (first, second)] == [503, 200]
    assert [attributes_of(span).get("http.request.resend_count") for span in (first, second)] == [None, 1]
    assert [span.status.code for span in (server, first, second)] == [
        Status.STATUS_CODE_UNSET,
        Status.STATUS_CODE_ERROR,
        Status.STATUS_CODE_UNSET,
    ]
    assert attributes_of(server)["vllm_router.attempts"] == 2


def test_a_worker_that_refuses_has_a_span_too(harness, collector, traced):
    client = traced(harness.refusing_port(), harness.worker(), **ON)
    assert client.ask("POST", COMPLETIONS, body=b"{}").status == 200
    refused, served = by_kind(collector.wait_for(3), CLIENT)
    assert attributes_of(refused)["error.type"] == "worker_unreachable"
    assert refused.status.code == Status.STATUS_CODE_ERROR
    assert served.status.code == Status.STATUS_CODE_UNSET


def test_errors_of_the_router_itself_are_traced(harness, collector, traced):
    client = traced(harness.refusing_port())
    assert client.ask("POST", COMPLETIONS, body=b"{}").status == 502
    server, _ = collector.wait_for(2)
    found = attributes_of(server)
    assert (found["http.response.status_code"], found["error.type"]) == (502, found["error"])
    assert server.status.code == Status.STATUS_CODE_ERROR


def test_a_connection_that_turns_out_closed_is_the_same_attempt(harness, collector, traced):
    closing = []

    def respond(connection, _message):
        if closing:
            closing.pop()
            connection.close()
        else:
            connection.send(response(200, b"hello"))

    worker = harness.worker(respond)
    client = traced(worker, **ON)
    assert client.ask("GET", "/x").status == 200
    closing.append(True)
    assert client.ask("GET", "/x").status == 200
    spans = collector.wait_for(4)
    assert len(worker.requests) == 3
    assert parts_of(worker.requests[1]) == parts_of(worker.requests[2])
    assert by_kind(spans, CLIENT)[1].span_id.hex() == parts_of(worker.requests[1])[2]


def test_requests_to_all_workers_are_below_the_request_s_span(harness, collector, traced):
    workers = [harness.worker(), harness.worker()]
    client = traced(*workers)
    assert client.ask("POST", "/flush_cache", SAMPLED).status == 200
    (server,) = collector.wait_for(1)
    assert [parts_of(worker.requests[0]) for worker in workers] == [
        ["00", TRACE, server.span_id.hex(), "01"]
    ] * 2


def test_a_client_that_leaves_is_no_error(harness, collector, traced):
    def hold(connection, _message):
        connection.ending()

    worker = harness.worker(hold)
    client = traced(worker)
    client.send(request("POST", COMPLETIONS, body=b"{}"))
    eventually(lambda: len(worker.requests) == 1)
    client.close()
    server, attempt = collector.wait_for(2)
    assert attributes_of(server)["vllm_router.end"] == "client_gone"
    assert [span.status.code for span in (server, attempt)] == [Status.STATUS_CODE_UNSET] * 2


# ---- simulated workers


@pytest.fixture
def simulated(harness):
    with contextlib.ExitStack() as stack:

        def start(**options):
            with harness.keeping_descriptors():
                return stack.enter_context(SimulatedWorker(engine="instant", **options))

        yield start


def complete(client, prompt, *fields):
    body = json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": 4}).encode()
    return client.ask("POST", COMPLETIONS, ("Content-Type", "application/json"), *fields, body=body)


def test_a_pair_of_prefill_and_decode_has_a_span_each(harness, collector, simulated):
    prefill, decode = simulated(stage="prefill"), simulated(stage="decode")
    router = harness.router(
        policy="least_load",
        routing={"prefill_urls": [prefill.url], "decode_urls": [decode.url]},
        enable_trace=True,
        otlp_traces_endpoint=collector.url,
        **ON,
    )
    assert complete(harness.client(router), "one two three " * 60, SAMPLED).status == 200
    spans = collector.wait_for(3)
    (server,), attempts = by_kind(spans, SERVER), by_kind(spans, CLIENT)
    phases = {attributes_of(span)["vllm.request_phase"]: span for span in attempts}
    assert set(phases) == {"prefill", "decode"}
    assert attributes_of(phases["prefill"])["url.full"] == prefill.url + COMPLETIONS
    assert attributes_of(phases["decode"])["url.full"] == decode.url + COMPLETIONS
    assert {span.parent_span_id for span in attempts} == {server.span_id}
    assert phases["prefill"].start_time_unix_nano <= phases["decode"].start_time_unix_nano


def test_tokens_that_were_predicted_and_reported_are_told(harness, collector, simulated):
    worker = simulated()
    router = harness.router(worker.url, policy="auto", enable_trace=True, otlp_traces_endpoint=collector.url)
    client = harness.client(router)
    for _ in range(2):
        assert complete(client, "one two three four five six " * 60).status == 200
    spans = collector.wait_for(4)
    first, second = (attributes_of(span) for span in by_kind(spans, SERVER))
    assert first.get("vllm_router.predicted_cached_tokens", 0) == 0
    assert second["vllm_router.predicted_cached_tokens"] > 0
    assert second["vllm_router.prompt_tokens"] > 0
    assert (second["vllm_router.policy"], second["vllm_router.attempts"]) == ("auto", 1)
    assert not any(key.startswith("gen_ai.") for span in spans for key in attributes_of(span))


def test_a_step_that_waits_has_a_span(harness, collector):
    body = b'{"choices": [{"text": "b", "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}'
    worker = harness.worker(
        lambda connection, _message: connection.send(
            response(200, body, ("Content-Type", "application/json"))
        )
    )
    router = harness.router(
        worker, response_cache=True, enable_trace=True, otlp_traces_endpoint=collector.url
    )
    client = harness.client(router)
    for _ in range(2):
        sent = client.ask(
            "POST",
            COMPLETIONS,
            ("Content-Type", "application/json"),
            body=b'{"prompt": "a", "temperature": 0}',
        )
        assert sent.status == 200
    spans = collector.wait_for(5)
    servers = by_kind(spans, SERVER)
    assert [attributes_of(span)["vllm_router.cache"] for span in servers] == ["miss", "hit"]
    parts = by_kind(spans, INTERNAL)
    assert [(part.name, part.parent_span_id) for part in parts] == [
        ("response_cache", server.span_id) for server in servers
    ]
    assert len(by_kind(spans, CLIENT)) == 1
