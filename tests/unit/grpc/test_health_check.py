"""cpp/grpc/health_check.h against the classes of grpcio-health-checking."""

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

OK, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED = 0, 3, 5, 12


@given(st.text(max_size=60))
def test_the_service_is_read(service):
    request = HealthCheckRequest(service=service)
    request.MergeFromString(testing.proto_write([("varint", 100, 7), ("text", 2, "unknown")]))
    assert testing.read_health_check(request.SerializeToString()) == service.encode()


def test_a_request_without_a_service_is_about_the_process():
    assert testing.read_health_check(HealthCheckRequest().SerializeToString()) == b""


def test_a_name_has_at_most_256_bytes():
    longest = HealthCheckRequest(service="x" * 256).SerializeToString()
    assert testing.read_health_check(longest) == b"x" * 256
    assert testing.read_health_check(HealthCheckRequest(service="x" * 257).SerializeToString()) is None


@pytest.mark.parametrize("state", sorted(HealthCheckResponse.ServingStatus.values()))
def test_a_state_is_told(state):
    request = HealthCheckRequest(service="a").SerializeToString()
    code, message, text = testing.health_call("Check", request, {"": 1, "a": state})
    assert (code, text) == (OK, "")
    assert HealthCheckResponse.FromString(message) == HealthCheckResponse(status=state)


def test_a_service_that_is_not_known_is_not_found():
    request = HealthCheckRequest(service="b").SerializeToString()
    assert testing.health_call("Check", request, {"a": 1}) == (
        NOT_FOUND,
        b"",
        "there is no service of this name",
    )


def test_what_is_no_request_is_told():
    code, message, text = testing.health_call("Check", b"\x0a\x05abc", {"": 1})
    assert (code, message) == (INVALID_ARGUMENT, b"")
    assert "at most 256 bytes" in text


@pytest.mark.parametrize("method", ["Watch", "List", "check", ""])
def test_other_methods_are_unimplemented(method):
    code, message, text = testing.health_call(method, b"", {"": 1})
    assert (code, message, text) == (UNIMPLEMENTED, b"", "the health service has one method, Check")
