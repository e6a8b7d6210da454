"""cpp/proxy/tracing/tracing_feature.h: what is rejected at the start, and what needs the switch."""

import pytest

from tests.fakes.collector import Collector

ON = {"enable_trace": True}


def test_without_the_switch_there_is_nothing_of_it(harness):
    collector = Collector(harness)
    router = harness.router(harness.worker(), otlp_traces_endpoint=collector.url)
    assert harness.client(router).ask("GET", "/x").status == 200
    assert "trace_" not in router.server.metrics_text()
    router.shutdown()
    router.must_end()
    assert collector.messages == []


@pytest.mark.parametrize("endpoint", ["http://c:4317", "grpc://c"])
def test_a_collector_s_grpc_port_is_refused(harness, endpoint):
    with pytest.raises(ValueError, match=r"otlp_traces_endpoint is .*usually http://c:4318"):
        harness.router(harness.worker(), otlp_traces_endpoint=endpoint, **ON)
    assert harness.router(harness.worker(), otlp_traces_endpoint=endpoint).port


def test_the_environment_names_the_collector_its_headers_and_the_service(harness, monkeypatch):
    collector = Collector(harness)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url + "/otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from-the-environment")
    client = harness.client(harness.router(harness.worker(), otel_service_name="from-the-flag", **ON))
    assert client.ask("GET", "/x").status == 200
    collector.wait_for(2)
    (message,) = collector.messages
    assert (message.method, message.target) == ("POST", "/otlp/v1/traces")
    assert message.get("api-key") == "secret"
    assert message.get("content-type") == "application/x-protobuf"
    assert message.get("authorization") is None
    names = [each.value.string_value for each in collector.exports[0].resource_spans[0].resource.attributes]
    assert "from-the-flag" in names


def test_the_workers_key_is_not_for_the_collector(harness):
    collector = Collector(harness)
    router = harness.router(harness.worker(), api_key="SECRET", otlp_traces_endpoint=collector.url, **ON)
    assert harness.client(router).ask("GET", "/x").status == 200
    collector.wait_for(2)
    assert b"SECRET" not in b"".join(message.raw for message in collector.messages)
