"""The prefix index end to end: its admin endpoints and metrics, as Continuum Router documents them."""

import json

import pytest

from tests.fakes.prometheus_text import parse
from tests.fakes.sse_kv_server import (
    PREFIX,
    SseKvServer,
    ask,
    event,
    open_router,
    prefix,
    stats,
    wait_for_index,
)


@pytest.fixture
def servers():
    return [SseKvServer(), SseKvServer()]


@pytest.fixture
def router(harness, servers):
    router = open_router(harness, *(harness.worker(server) for server in servers))
    for server in servers:
        server.wait_connected()
    return router


def test_statistics_have_these_members_in_this_order(harness, router, servers):
    servers[0].send(event("created", PREFIX, 2048))
    wait_for_index(harness, router, received=1)
    found = stats(harness, router)
    last = found["event_sources"][0]["last_event_at"]
    assert json.dumps(found) == json.dumps(
        {
            "enabled": True,
            "config": {
                "backend": "memory",
                "max_entries": 1000,
                "entry_ttl_seconds": 600,
                "event_sources_count": 2,
                "scoring": {
                    "overlap_weight": 0.6,
                    "load_weight": 0.3,
                    "health_weight": 0.1,
                    "min_overlap_threshold": 0.3,
                },
            },
            "index": {"prefix_count": 1, "entry_count": 1, "total_hits": 0, "total_evictions": 0},
            "event_sources": [
                {
                    "backend_name": name,
                    "connected": True,
                    "events_received": received,
                    "events_dropped": 0,
                    "last_event_at": last if received else None,
                    "reconnect_count": 0,
                }
                for name, received in (("vllm-1", 1), ("vllm-2", 0))
            ],
            "routing_decisions": {"kv_aware": 0, "fallback": 0, "total": 0},
            "query_latency_count": 0,
            "overlap_score_count": 0,
        }
    )


def test_backends_have_these_members_in_this_order(harness, router, servers):
    servers[0].send(event("created", PREFIX), event("evicted", PREFIX), event("created"))
    wait_for_index(harness, router, received=3)
    found = json.loads(ask(harness, router, "GET", "backends").body)
    first = found["backends"][0]
    assert json.dumps(found["backends"][1]) == json.dumps(
        {
            "backend_name": "vllm-2",
            "connection": {"connected": True, "reconnect_count": 0, "last_event_at": None},
            "events": {"received": 0, "dropped": 0, "index_created": 0, "index_evicted": 0},
        }
    )
    assert found["enabled"] is True
    assert first["events"] == {"received": 3, "dropped": 1, "index_created": 1, "index_evicted": 1}


def test_a_clear_counts_entries_and_backends(harness, router, servers):
    servers[0].send(event("created", PREFIX), event("created", prefix(1)))
    wait_for_index(harness, router, entry_count=2)
    servers[1].send(event("created", PREFIX))
    wait_for_index(harness, router, entry_count=3)
    cleared = ask(harness, router, "POST", "clear")
    assert cleared.body == b'{"success":true,"entries_before_clear":3,"cleared_entries":2}'
    assert stats(harness, router)["index"]["entry_count"] == 0
    servers[0].send(event("created", PREFIX))
    wait_for_index(harness, router, entry_count=1)


@pytest.mark.parametrize("policy", ["kv_overlap", "auto"])
@pytest.mark.parametrize("holder", [0, 1])
def test_a_request_goes_to_the_worker_that_says_it_holds_its_prefix(harness, servers, policy, holder):
    workers = [harness.worker(server) for server in servers]
    router = open_router(harness, *workers, policy=policy, decision_headers=True)
    for server in servers:
        server.wait_connected()
    servers[holder].send(event("created", PREFIX, 4096))
    wait_for_index(harness, router, prefix_count=1)
    client = harness.client(router)
    for question in ("a", "b", "c", "d"):
        body = {
            "model": "llama-3",
            "messages": [
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": question * 1000},
            ],
        }
        found = client.ask("POST", "/v1/chat/completions", body=json.dumps(body).encode())
        assert found.get("x-vllm-router-worker") == workers[holder].url
    found = stats(harness, router)
    assert found["index"]["total_hits"] == 4
    scored = 4 if policy == "kv_overlap" else 0
    assert found["routing_decisions"] == {"kv_aware": scored, "fallback": 0, "total": scored}
    decisions = 'vllm_router_kv_index_routing_decisions_total{decision="kv_aware"} 4'
    assert (decisions in router.server.metrics_text()) == (policy == "kv_overlap")


@pytest.mark.parametrize("policy", ["auto", "least_load"])
def test_an_index_that_is_off_says_so(harness, policy):
    router = harness.router(harness.worker(SseKvServer()), policy=policy)
    for path in ("stats", "backends"):
        assert ask(harness, router, "GET", path).body == b'{"enabled":false}'
    refused = ask(harness, router, "POST", "clear")
    assert refused.status == 409
    assert "kv_cache_index.enabled" in json.loads(refused.body)["error"]["message"]
    assert "continuum_" not in router.server.metrics_text()


def test_the_endpoints_need_the_admin_key(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-an-admin-0123456789\n")
    keys.chmod(0o600)
    router = open_router(harness, harness.worker(SseKvServer()), admin_api_key_file=str(keys))
    for method, path in (("GET", "stats"), ("GET", "backends"), ("POST", "clear")):
        assert ask(harness, router, method, path).status == 401


def test_metrics_have_the_names_of_continuum_router(harness, router, servers):
    servers[0].send(
        event("created", PREFIX), event("evicted", PREFIX), event("created", prefix(1)), event("x")
    )
    wait_for_index(harness, router, received=4)
    families = parse(router.server.metrics_text())

    def value(name, **labels):
        return families[f"continuum_kv_{name}"].value(**labels)

    first = {"backend": "vllm-1"}
    assert value("event_received_total", **first) == 4
    assert value("event_processed_total", **first) == 3
    assert value("event_dropped_total", **first) == 1
    assert value("consumer_connected", **first) == 1
    assert value("consumer_reconnects_total", **first) == 0
    assert value("index_entries") == 1
    assert value("index_events_total", type="created", **first) == 2
    assert value("index_events_total", type="evicted", **first) == 1
    assert value("index_event_source_status", status="connected", **first) == 1
    assert value("index_event_source_status", status="error", **first) == 0
    assert value("event_received_total", backend="vllm-2") == 0
