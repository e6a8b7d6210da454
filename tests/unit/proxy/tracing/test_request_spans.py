"""cpp/proxy/tracing/request_spans.h: the spans of records, read by OpenTelemetry's own definitions."""

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.fakes.collector import CLIENT, INTERNAL, SERVER, attributes_of, spans_in
from vllm_router import _core_testing as testing

MS = 1_000_000
HEAD = 5_000 * MS
TRACE = {
    "high": 1,
    "low": 2,
    "span": 3,
    "parent": 0,
    "state": "",
    "tls": False,
    "minor_version": 1,
    "parts": [],
}
RECORD = {
    "wall_us": 1_700_000_000_000_000,
    "head_ns": HEAD,
    "body_ns": HEAD + MS,
    "end_ns": HEAD + 50 * MS,
    "method": "POST",
    "path": "/v1/completions",
    "route": "/v1/completions",
    "request_id": "req-1",
    "client": "10.0.0.1",
    "status": 200,
}
ATTEMPT = {
    "phase": "inference",
    "chosen_ns": HEAD + 2 * MS,
    "sent_ns": HEAD + 3 * MS,
    "first_body_ns": HEAD + 9 * MS,
    "end_ns": HEAD + 49 * MS,
    "status": 200,
    "error": "",
    "span_id": 9,
}


def worker(url="http://w:8000"):
    return testing.WorkerHandle(url)


def spans_of(*attempts, genai=False, trace=None, **record):
    made = [{**ATTEMPT, "worker": worker(), **attempt} for attempt in attempts]
    count, data = testing.request_spans({**TRACE, **(trace or {})}, made, genai, **{**RECORD, **record})
    spans = spans_in(data)
    assert len(spans) == count
    return spans


def failed(span):
    return span.status.code == Status.STATUS_CODE_ERROR


def unix_ms(moment):
    return (moment - 1_700_000_000_000_000_000) / MS


def test_a_request_without_an_attempt_has_one_span():
    (span,) = spans_of()
    assert (span.kind, span.name) == (SERVER, "POST /v1/completions")
    assert (span.trace_id, span.span_id) == (bytes(7) + b"\1" + bytes(7) + b"\2", bytes(7) + b"\3")
    assert (span.parent_span_id, span.flags, failed(span)) == (b"", 0x101, False)
    assert unix_ms(span.start_time_unix_nano) == 0
    assert unix_ms(span.end_time_unix_nano) == 50
    assert attributes_of(span) == {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "url.path": "/v1/completions",
        "url.scheme": "http",
        "http.response.status_code": 200,
        "client.address": "10.0.0.1",
        "network.protocol.version": "1.1",
        "request_id": "req-1",
        "latency_ms": 50.0,
        "vllm_router.end": "done",
    }


def test_what_the_router_decided_is_among_its_attributes():
    (span,) = spans_of(
        chosen_ns=HEAD + 4 * MS,
        queue_ns=2 * MS,
        reason="lowest_cost",
        arm="policy",
        match=("blocks", 3, 5),
        attempts=2,
        prompt_tokens=90,
        cached_tokens=48,
        cache="miss",
        trace={"parent": 7, "state": "a=b", "tls": True, "minor_version": 0},
    )
    assert (span.parent_span_id, span.flags, span.trace_state) == (bytes(7) + b"\7", 0x301, "a=b")
    found = attributes_of(span)
    assert (found["url.scheme"], found["network.protocol.version"]) == ("https", "1.0")
    assert {key: value for key, value in found.items() if key.startswith("vllm_router.")} == {
        "vllm_router.end": "done",
        "vllm_router.cache": "miss",
        "vllm_router.queue_ms": 2.0,
        "vllm_router.policy": "auto",
        "vllm_router.reason": "lowest_cost",
        "vllm_router.arm": "policy",
        "vllm_router.attempts": 2,
        "vllm_router.decision_us": 1000,
        "vllm_router.predicted_cached_tokens": 48,
        "vllm_router.reported_cached_tokens": 48,
        "vllm_router.prompt_tokens": 90,
    }


def test_the_time_of_the_decision_is_that_of_the_first_one():
    retried = {"chosen_ns": HEAD + 30 * MS}
    server, *_ = spans_of({}, retried, chosen_ns=retried["chosen_ns"], reason="lowest_cost")
    assert attributes_of(server)["vllm_router.decision_us"] == 1000


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"status": 200}, None),
        ({"status": 404, "error": "not_found"}, None),
        ({"status": 200, "end": "no_done"}, None),
        ({"status": 200, "end": "client_gone"}, None),
        ({"status": 502, "error": "worker_unreachable"}, "worker_unreachable"),
        ({"status": 500}, "500"),
        ({"status": 200, "end": "worker_gone"}, "worker_gone"),
        ({"status": 200, "end": "timeout", "error": "total_timeout"}, "total_timeout"),
        ({"status": 200, "end": "slow_client"}, "slow_client"),
    ],
)
def test_a_request_fails_by_its_status_or_its_end(record, kind):
    (span,) = spans_of(**record)
    assert attributes_of(span).get("error.type") == kind
    assert attributes_of(span).get("error") == record.get("error")
    assert failed(span) == (kind is not None)


def test_an_attempt_is_a_span_below_the_request_s():
    server, client = spans_of({})
    assert (client.kind, client.name) == (CLIENT, "http_client_request")
    assert (client.trace_id, client.parent_span_id) == (server.trace_id, server.span_id)
    assert (client.span_id, client.flags) == (bytes(7) + b"\x09", 0x101)
    assert unix_ms(client.start_time_unix_nano) == 2
    assert unix_ms(client.end_time_unix_nano) == 49
    assert [(event.name, unix_ms(event.time_unix_nano)) for event in client.events] == [("first_byte", 9)]
    assert attributes_of(client) == {
        "http.request.method": "POST",
        "url.full": "http://w:8000/v1/completions",
        "server.address": "w",
        "server.port": 8000,
        "http.response.status_code": 200,
        "vllm.request_phase": "inference",
    }


def test_a_retry_is_a_sibling_and_says_how_many_came_before():
    first = {
        "chosen_ns": HEAD + MS,
        "span_id": 0,
        "status": 0,
        "error": "worker_unreachable",
        "first_body_ns": 0,
    }
    second = {"chosen_ns": HEAD + 2 * MS, "status": 503}
    server, one, two, three = spans_of(first, second, {"chosen_ns": HEAD + 3 * MS, "span_id": 10})
    assert {span.parent_span_id for span in (one, two, three)} == {server.span_id}
    assert len({span.span_id for span in (server, one, two, three)}) == 4
    resends = [attributes_of(span).get("http.request.resend_count") for span in (one, two, three)]
    assert resends == [None, 1, 2]
    kinds = [attributes_of(span).get("error.type") for span in (one, two, three)]
    assert (kinds, [failed(span) for span in (one, two, three)]) == (
        ["worker_unreachable", "503", None],
        [True, True, False],
    )
    assert not one.events


@pytest.mark.parametrize("error", ["client_gone", "cancelled"])
def test_an_attempt_that_is_no_longer_needed_has_not_failed(error):
    _, client = spans_of({"error": error})
    assert not failed(client)


def test_a_pair_has_two_phases_and_no_resend():
    prefill = {"phase": "prefill", "worker": worker("http://[::1]:1/p@2")}
    _, one, two = spans_of(prefill, {"phase": "decode", "chosen_ns": HEAD + 5 * MS})
    assert attributes_of(one)["vllm.request_phase"] == "prefill"
    assert attributes_of(one)["url.full"] == "http://[::1]:1/p/v1/completions"
    assert attributes_of(one)["server.address"] == "::1"
    assert attributes_of(two)["vllm.request_phase"] == "decode"
    assert "http.request.resend_count" not in attributes_of(two)


def test_parts_are_internal_spans():
    server, part, other = spans_of(
        trace={"parts": [("tokenize", HEAD + MS, HEAD + 3 * MS), ("shared_pool", 1, 2)]}
    )
    assert (part.name, part.kind, part.parent_span_id) == ("tokenize", INTERNAL, server.span_id)
    assert unix_ms(part.start_time_unix_nano) == 1
    assert unix_ms(part.end_time_unix_nano) == 3
    assert other.name == "shared_pool"
    assert other.span_id != part.span_id


def test_methods_and_paths_are_few_or_cut():
    (span,) = spans_of(method="BREW", path="/x" * 300, route="other")
    assert span.name == "HTTP"
    found = attributes_of(span)
    assert (found["http.request.method"], len(found["url.path"])) == ("_OTHER", 256)
    assert "http.route" not in found


def test_generative_conventions_come_only_on_demand():
    usage = {"prompt_tokens": 90, "completion_tokens": 7, "cached_tokens": 48}
    record = {
        **usage,
        "model": "qwen",
        "stream": True,
        "names": ("SECRET", "", ""),
        "route": "/v1/chat/completions",
    }
    for span in spans_of({}, **record):
        assert not any(key.startswith("gen_ai.") for key in attributes_of(span))
    server, first, last = spans_of({"status": 503}, {"span_id": 10}, genai=True, **record)
    assert not any(key.startswith("gen_ai.") for key in attributes_of(server))
    assert (first.name, last.name) == ("chat qwen", "chat qwen")
    found = {key: value for key, value in attributes_of(last).items() if key.startswith("gen_ai.")}
    conversation = found.pop("gen_ai.conversation.id")
    assert (len(conversation), conversation) == (16, attributes_of(first)["gen_ai.conversation.id"])
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "qwen",
        "gen_ai.request.stream": True,
        "gen_ai.response.time_to_first_chunk": pytest.approx(0.006),
        "gen_ai.usage.input_tokens": 90,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 48,
    }
    # Each request's tokens are counted once.
    assert not any(key.startswith("gen_ai.usage") for key in attributes_of(first))


@pytest.mark.parametrize(
    ("record", "tokens"),
    [
        ({}, None),
        ({"match": ("none", 0, 0)}, None),
        ({"match": ("tokens", 30, 90)}, 30),
        ({"match": ("blocks", 3, 5)}, 48),
        ({"match": ("bytes", 100, 400)}, 25),
        ({"match": ("bytes", 100, 400), "prompt_tokens": 80}, 20),
        ({"match": ("bytes", 0, 0), "prompt_tokens": 80}, 0),
    ],
)
def test_predictions_are_in_tokens(record, tokens):
    assert testing.predicted_tokens(16, **record) == tokens


def test_the_client_is_among_its_attributes_where_clients_are_told_apart():
    (span,) = spans_of(tenant="search", priority_class="batch")
    found = attributes_of(span)
    assert (found["vllm_router.tenant"], found["vllm_router.class"]) == ("search", "batch")
    (span,) = spans_of()
    assert {"vllm_router.tenant", "vllm_router.class"}.isdisjoint(attributes_of(span))
