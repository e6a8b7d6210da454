"""cpp/proxy/tracing/trace_exporter.h: collectors that take spans, refuse them, are slow, or are not there."""

import re

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.fakes.collector import Collector
from tests.fakes.wire import eventually, response, wait_until_logged

PER_REQUEST = 2  # spans: of the request, and of its attempt


def spans(router, result):
    found = re.search(
        rf'^vllm_router_trace_spans_total{{result="{result}"}} (\S+)$',
        router.server.metrics_text(),
        re.MULTILINE,
    )
    return int(float(found[1]))


def exports(router):
    """Requests to the collector that have ended."""
    page = router.server.metrics_text()
    return int(re.search(r"^vllm_router_trace_export_seconds_count (\d+)", page, re.MULTILINE)[1])


@pytest.fixture
def traced(harness):
    def start(url, **options):
        return harness.router(harness.worker(), enable_trace=True, otlp_traces_endpoint=url, **options)

    return start


def end(router):
    router.shutdown()
    router.must_end()


def ask(harness, router, count=1):
    client = harness.client(router)
    assert [client.ask("GET", "/x").status for _ in range(count)] == [200] * count


def answering(*statuses, fields=()):
    """One after the other, and the last one from then on."""
    left = list(statuses)

    def respond(connection, _message):
        status = left.pop(0) if len(left) > 1 else left[0]
        connection.send(response(status, b"", *fields))

    return respond


def test_each_export_has_the_spans_since_the_last_one(harness, traced):
    collector = Collector(harness)
    router = traced(collector.url)
    for asked in range(1, 4):
        ask(harness, router, 4 - asked)
        eventually(lambda before=asked: exports(router) >= before)
    spans_ = collector.wait_for((3 + 2 + 1) * PER_REQUEST)
    assert len({span.span_id for span in spans_}) == len(spans_)


def test_spans_are_counted_once_exported(harness, traced):
    router = traced(Collector(harness).url)
    ask(harness, router, 3)
    eventually(lambda: spans(router, "exported") == 3 * PER_REQUEST)
    assert [spans(router, result) for result in ("dropped", "rejected", "sampled_out")] == [0, 0, 0]
    assert exports(router) > 0


def test_spans_of_many_requests_come_once_each(harness, traced):
    collector = Collector(harness)
    router = traced(collector.url)
    ask(harness, router, 300)
    spans = collector.wait_for(600)
    assert len({span.span_id for span in spans}) == 600


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_collector_that_is_busy_gets_the_spans_again(harness, traced, status):
    collector = Collector(harness, answering(status, 200))
    router = traced(collector.url)
    ask(harness, router)
    eventually(lambda: spans(router, "exported") == PER_REQUEST)
    first, again = collector.messages
    assert first.body == again.body


def test_the_pause_is_what_the_collector_asks_for(harness, traced):
    collector = Collector(harness, answering(503, fields=[("Retry-After", "3600")]))
    router = traced(collector.url)
    ask(harness, router)
    eventually(lambda: exports(router) == 1)
    end(router)  # which ends the pause, and is followed by one more attempt
    assert len(collector.messages) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 413, 500])
def test_spans_that_are_refused_are_dropped(harness, traced, status, capfd):
    collector = Collector(harness, answering(status))
    router = traced(collector.url)
    ask(harness, router)
    eventually(lambda: spans(router, "dropped") == PER_REQUEST)
    assert len(collector.messages) == 1
    wait_until_logged(capfd, f"has not taken 2 spans: its status was {status}")


def test_spans_that_a_collector_rejects_are_counted(harness, traced):
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = 1
    partial.partial_success.error_message = "too old"
    body = partial.SerializeToString()
    collector = Collector(harness, lambda connection, _message: connection.send(response(200, body)))
    router = traced(collector.url)
    ask(harness, router)
    eventually(lambda: spans(router, "rejected") == 1)
    assert spans(router, "exported") == PER_REQUEST - 1


def test_a_response_that_cannot_be_read_counts_as_good(harness, traced):
    collector = Collector(harness, lambda connection, _message: connection.send(response(200, b"\x0a\xff")))
    router = traced(collector.url)
    ask(harness, router)
    eventually(lambda: spans(router, "exported") == PER_REQUEST)


def test_what_is_there_at_the_end_is_sent(harness, traced):
    collector = Collector(harness)
    router = traced(collector.url)
    ask(harness, router, 5)
    end(router)
    assert len(collector.spans) == 5 * PER_REQUEST


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_collector_that_breaks_off_hurts_nobody(harness, traced, how):
    collector = Collector(harness, lambda connection, _message: getattr(connection, how)())
    router = traced(collector.url)
    ask(harness, router, 20)
    eventually(lambda: len(collector.messages) >= 1)
    ask(harness, router, 20)
    end(router)


def test_a_collector_that_is_absent_hurts_nobody(harness, traced):
    router = traced(harness.refusing_port().url)
    ask(harness, router, 50)
    end(router)


def test_a_collector_that_hangs_holds_up_neither_requests_nor_the_end(harness, traced):
    collector = Collector(harness, lambda connection, _message: connection.ending())
    router = traced(collector.url)
    ask(harness, router)
    eventually(lambda: len(collector.messages) == 1)
    ask(harness, router, 2200)
    eventually(lambda: spans(router, "dropped") == 2200 * PER_REQUEST - 4096)
    end(router)
