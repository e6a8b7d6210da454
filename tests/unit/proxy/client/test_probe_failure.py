"""cpp/proxy/client/probe_failure.h: what a request of the router itself came to, and what helps."""

import pytest

from vllm_router._core_testing import probe_failure


@pytest.mark.parametrize(
    ("worker", "target", "status", "key", "text"),
    [
        ("http://w:8000", "/health", 503, "sent", "returned 503 to GET /health"),
        ("http://w:8000", "/health", 404, "none", "returned 404 to GET /health"),
        (
            "http://w:8000",
            "/v1/models",
            401,
            "sent",
            "returned 401 to GET /v1/models: --api-key is not the engine's",
        ),
        (
            "http://w:8000",
            "/v1/models",
            403,
            "none",
            "returned 403 to GET /v1/models: the engine wants a key; set --api-key to the engine's",
        ),
        (
            "http://w:8000/v1",
            "/health",
            404,
            "none",
            "returned 404 to GET /health: its URL should end before /v1: http://w:8000",
        ),
        (
            "http://w:8000/gpu/v1/chat@3",
            "/health",
            404,
            "none",
            "returned 404 to GET /health: its URL should end before /v1: http://w:8000/gpu",
        ),
        ("http://w:8000/v1", "/health", 500, "none", "returned 500 to GET /health"),
        ("http://w:8000/v10", "/health", 404, "none", "returned 404 to GET /health"),
    ],
)
def test_a_status_is_told_with_its_remedy(worker, target, status, key, text):
    """Rows 30 and 38: a 401 "did not respond", and nothing pointed at the end of the URL."""
    assert probe_failure(worker, target, status, key) == text


def test_a_key_that_is_withheld_is_said():
    assert "added by a request without an admin key" in probe_failure("http://w", "/health", 401, "withheld")


def test_without_a_response_the_reason_is_told():
    said = probe_failure("http://w/v1", "/health", 0, reason="the connection was refused")
    assert said == "did not respond to GET /health: the connection was refused"
