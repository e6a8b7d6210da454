"""cpp/tracing/otlp_settings.h: where spans go, by flags and by OpenTelemetry's variables."""

import pytest

from vllm_router import _core_testing as testing
from vllm_router._version import __version__

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


def url(endpoint="", **environment):
    return testing.otlp_settings(endpoint, environment=environment)["url"]


def refusal(endpoint="", **environment):
    with pytest.raises(ValueError) as refused:  # noqa: PT011, the whole sentence is compared
        testing.otlp_settings(endpoint, environment=environment)
    return str(refused.value)


def test_the_flag_comes_before_the_variables():
    others = {TRACES: "http://t:1/x", BASE: "http://b:1"}
    assert url("http://c:4318", **others) == "http://c:4318/v1/traces"
    assert url("http://c:4318/", **others) == "http://c:4318/v1/traces"
    assert url("https://c/own/path", **others) == "https://c/own/path"
    assert url("c:4318", **others) == "http://c:4318/v1/traces"
    assert url(**others) == "http://t:1/x"
    assert url(**{TRACES: "http://t:1"}) == "http://t:1/"
    assert url(**{BASE: "http://b:1"}) == "http://b:1/v1/traces"
    assert url(**{BASE: "http://b:1/otlp/"}) == "http://b:1/otlp/v1/traces"
    assert url() == "http://localhost:4318/v1/traces"


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        (
            "http://c:4317",
            "http://c:4317, the port of OTLP over gRPC; name the collector's HTTP port, usually http://c:4318",
        ),
        (
            "c:4317",
            "http://c:4317, the port of OTLP over gRPC; name the collector's HTTP port, usually http://c:4318",
        ),
        (
            "grpc://c:1",
            "grpc://c:1, which is OTLP over gRPC; name the collector's HTTP port, usually http://c:4318",
        ),
        (
            "grpcs://[::1]:1",
            "grpcs://[::1]:1, which is OTLP over gRPC; name the collector's HTTP port, usually http://[::1]:4318",
        ),
    ],
)
def test_grpc_is_refused_with_the_remedy(endpoint, said):
    assert refusal(endpoint) == f"otlp_traces_endpoint is {said}"
    assert refusal(**{TRACES: endpoint}) == f"{TRACES} is {said}"
    assert refusal(**{BASE: endpoint}) == f"{BASE} is {said}"


@pytest.mark.parametrize(
    "endpoint",
    ["http://u:SECRET@c", "ftp://SECRET", "http://c:99999/SECRET", "ray://SECRET", "http://SECRET@1"],
)
def test_a_url_that_is_none_is_not_shown(endpoint):
    said = refusal(endpoint)
    assert said.startswith("otlp_traces_endpoint cannot be used: it ")
    assert said.endswith("; write it as http://collector:4318, or https:// for TLS")
    assert "SECRET" not in said


def test_headers_are_those_of_traces_or_of_all():
    both = {
        "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "api-key=x%20y, b = 2 ,",
    }
    assert testing.otlp_settings(environment=both)["headers"] == "api-key: x y\r\nb: 2\r\n"
    del both["OTEL_EXPORTER_OTLP_TRACES_HEADERS"]
    assert testing.otlp_settings(environment=both)["headers"] == "a: 1\r\n"


@pytest.mark.parametrize(
    "text", ["SECRET", "=SECRET", "a b=SECRET", "a=SECRET%0d%0ax: y", "a=SECRET%", "a:=SECRET"]
)
def test_other_headers_are_refused_and_not_shown(text):
    said = refusal(OTEL_EXPORTER_OTLP_HEADERS=text)
    assert (
        "OTEL_EXPORTER_OTLP_HEADERS of the environment is no list of headers; write it as name=value" in said
    )
    assert "SECRET" not in said


def test_the_service_has_the_first_name_that_is_given():
    def name(flag="", **environment):
        settings = testing.otlp_settings(service_name=flag, environment=environment)
        return next(value for key, value in settings["resource"] if key == "service.name")

    attributes = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=c,zone=eu%2C1"}
    assert name("a", OTEL_SERVICE_NAME="b", **attributes) == "a"
    assert name(OTEL_SERVICE_NAME="b", **attributes) == "b"
    assert name(**attributes) == "c"
    assert name() == "vllm-router"
    resource = testing.otlp_settings(environment=attributes)["resource"]
    assert ("zone", "eu,1") in resource
    assert ("service.version", __version__) in resource
    assert "OTEL_RESOURCE_ATTRIBUTES" in refusal(OTEL_RESOURCE_ATTRIBUTES="x")


@pytest.mark.parametrize(
    ("value", "genai"),
    [
        ("", False),
        ("http", False),
        ("gen_ai_latest_experimental", True),
        ("http, gen_ai_latest_experimental", True),
    ],
)
def test_conventions_in_development_are_asked_for(value, genai):
    assert testing.otlp_settings(environment={"OTEL_SEMCONV_STABILITY_OPT_IN": value})["genai"] == genai


def test_the_process_s_environment_is_read(monkeypatch):
    monkeypatch.setenv("VLLM_ROUTER_TEST_VARIABLE", " x ")
    assert testing.process_environment("VLLM_ROUTER_TEST_VARIABLE") == "x"
    assert testing.process_environment("VLLM_ROUTER_TEST_NOTHING") == ""
