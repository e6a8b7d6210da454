"""prefix_aware and prefix_hash over HTTP: requests meet by how they begin, and the statistics say so."""

import json

import pytest

from tests.fakes.prometheus_text import parse
from tests.fakes.wire import eventually, response

CHAT = "/v1/chat/completions"
STATS = "/admin/prefix-routing/stats"


def chat(system, user="Hi"):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return json.dumps({"model": "m", "messages": messages}).encode()


def named(name):
    return lambda connection, _: connection.send(response(200, name))


def stats_of(client):
    answer = client.ask("GET", STATS)
    assert (answer.status, answer.get("content-type")) == (200, "application/json")
    return json.loads(answer.body)


@pytest.fixture
def idle(harness):
    """Three workers that answer with their names, and nothing else open."""
    return [harness.worker(named(name)) for name in (b"a", b"b", b"c")]


def test_chats_with_one_system_prompt_meet_on_one_worker(harness, idle):
    router = harness.router(*idle, policy="prefix_aware")
    client = harness.client(router)
    met = {}
    for turn in range(30):
        system = f"You are assistant number {turn % 5}."
        # Load returns after the last byte; with more than one open request the bound would move the next one.
        eventually(lambda: not any(worker.load for worker in router.core.workers))
        met.setdefault(system, set()).add(client.ask("POST", CHAT, body=chat(system, f"{turn}")).body)
    assert all(len(workers) == 1 for workers in met.values())
    assert (
        client.ask(
            "POST",
            "/v1/messages",
            body=json.dumps(
                {
                    "model": "m",
                    "system": "You are assistant number 3.",
                    "messages": [{"role": "user", "content": "?"}],
                }
            ).encode(),
        ).body
        in met["You are assistant number 3."]
    )


def test_the_statistics_have_the_documented_form(harness, idle):
    router = harness.router(
        *idle, policy="prefix_aware", routing={"prefix_load_floor": 8, "load_factor_epsilon": 0.5}
    )
    client = harness.client(router)
    for turn in range(12):
        client.ask("POST", CHAT, body=chat(f"{turn % 4}"))
    client.ask("GET", "/anything")
    eventually(lambda: not any(worker.load for worker in router.core.workers))
    assert stats_of(client) == {
        "enabled": True,
        "config": {
            "max_prefix_length": 1024,
            "load_factor_epsilon": 0.5,
            "virtual_nodes": 150,
            "prefix_load_floor": 8,
            "anthropic_cache_control_injection": False,
        },
        "routing_decisions": {
            "total": 13,
            "prefix_hash": 12,
            "overflow": 0,
            "fallback": 1,
            "overflow_rate": "0.0000",
        },
        "backend_distribution": [{"backend": worker.url, "in_flight_requests": 0} for worker in idle],
        "unique_prefixes": 4,
    }
    families = parse(router.server.metrics_text())
    strategies = families["vllm_router_prefix_routing_requests_total"].series
    assert {dict(labels)["strategy"]: count for labels, count in strategies.items()} == {
        "prefix_hash": 12,
        "overflow": 0,
        "fallback": 1,
    }
    assert list(families["vllm_router_prefix_routing_prefix_cardinality"].series.values()) == [4]
    assert len(families["vllm_router_prefix_routing_backend_distribution"].series) == 3


def test_a_busy_owner_overflows_and_the_rate_says_how_often(harness, idle):
    router = harness.router(*idle, policy="prefix_aware", routing={"prefix_load_floor": 0})
    client = harness.client(router)
    # Caps of 1, 1 and 2: the owner, the one behind it, the owner again.
    held = [router.core.select(chat("load")) for _ in range(3)]
    assert [ticket.reason for ticket in held] == ["prefix_hash", "overflow", "prefix_hash"]
    found = stats_of(client)
    assert found["routing_decisions"] == {
        "total": 3,
        "prefix_hash": 2,
        "overflow": 1,
        "fallback": 0,
        "overflow_rate": "0.3333",
    }
    assert sorted(entry["in_flight_requests"] for entry in found["backend_distribution"]) == [0, 1, 2]


def test_under_another_policy_nothing_is_enabled(harness, idle):
    client = harness.client(harness.router(*idle, policy="round_robin"))
    client.ask("POST", CHAT, body=chat("x"))
    found = stats_of(client)
    assert (found["enabled"], found["routing_decisions"]["total"], found["unique_prefixes"]) == (False, 0, 0)
    assert client.ask("POST", STATS, body=b"").status == 405


def test_prefix_hash_keeps_requests_that_begin_alike_together(harness, idle):
    router = harness.router(*idle, policy="prefix_hash", routing={"prefix_token_count": 8})
    client = harness.client(router)
    met = {}
    for turn in range(60):  # twenty prompts, or all of them might have one owner by chance
        system = f"You are number {turn % 20}, who is there to help."
        answer = client.ask("POST", CHAT, body=chat(system, f"{turn}"))
        met.setdefault(system, set()).add(answer.body)
    assert all(len(workers) == 1 for workers in met.values())
    assert len(set.union(*met.values())) > 1
