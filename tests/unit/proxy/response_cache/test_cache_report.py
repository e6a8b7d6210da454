"""cpp/proxy/response_cache/cache_report.h: what operators are told of the response cache, and may ask for."""

import json

import pytest

from tests.fakes.cached import Engine, answer_of, ask, body_of, cached, counted


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"clear_all": false}',
        b'{"clear_all": true, "model": "m"}',
        b'{"key": "0"}',
        b'{"model": ""}',
        b'{"all": true}',
    ],
)
def test_other_calls_are_refused(harness, body):
    client = harness.client(cached(harness, Engine(harness)))
    refused = client.ask("POST", "/admin/response-cache/invalidate", body=body)
    assert refused.status == 400
    said = json.loads(refused.body)
    assert said["success"] is False
    assert "clear_all" in said["error"]


def test_stats_are_as_the_other_router_prints_them(harness):
    router = cached(harness, Engine(harness), response_cache_ttl_secs=1800, response_cache_capacity=5000)
    client = harness.client(router)
    for body in (body_of(), body_of(), body_of(), body_of(temperature=1)):
        ask(client, body)
    stats = json.loads(client.ask("GET", "/admin/response-cache/stats").body)
    size = stats.pop("size_bytes")
    assert size > len(answer_of(1))
    assert stats == {
        "enabled": True,
        "backend_type": "memory",
        "entries": 1,
        "capacity": 5000,
        "requests": {"hit": 2, "miss": 1, "skip": 1, "total": 4},
        "hit_rate": "0.6667",
        "evictions": 0,
        "config": {
            "backend": "memory",
            "ttl": "30m",
            "capacity": 5000,
            "max_response_size": 1048576,
            "max_stream_buffer_size": 10485760,
        },
    }
    detail = json.loads(client.ask("GET", "/admin/response-cache/stats?detail=1").body)["detail"]
    assert detail["bypass"] == {"temperature": 1}
    assert counted(router, "continuum_response_cache_hit_rate") == pytest.approx(2 / 3)
    assert counted(router, 'vllm_router_response_cache_saved_tokens_total{kind="prompt"}') == 14
    assert counted(router, 'vllm_router_response_cache_saved_tokens_total{kind="completion"}') == 4
