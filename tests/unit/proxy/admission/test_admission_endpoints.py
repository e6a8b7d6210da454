"""cpp/proxy/admission/admission_endpoints.h: the page of priority classes."""

import json

LINES = (
    "class interactive gate=gated kv_ceiling=0.9 weight=8\n"
    "class default queue_size=3 queue_timeout_ms=1500 kv_ceiling=0.8 weight=2\n"
    "class batch weight=1"
)


def page(harness, router):
    got = harness.client(router).ask("GET", "/admin/admission")
    assert got.status == 200
    return json.loads(got.body)


def test_without_classes(harness):
    assert page(harness, harness.router(harness.worker())) == {"enabled": False}


def test_settings_and_pools(harness):
    router = harness.router(harness.worker(), admission_config=LINES)
    before = page(harness, router)
    assert (before["order"], before["pools"]) == ("weighted", [])
    assert before["classes"][0]["kv_ceiling"] == 0.9
    assert before["classes"][1] == {
        "class": "default",
        "queue_size": 3,
        "queue_timeout_secs": 1.5,
        "gate": "gated",
        "kv_ceiling": 0.8,
        "age_after_secs": 30,
        "weight": 2,
    }
    assert harness.client(router).ask("POST", "/v1/completions", body=b"{}").status == 200
    (pool,) = page(harness, router)["pools"]
    assert (pool["model"], pool["workers"]) == (None, 1)
    assert [row["class"] for row in pool["classes"]] == ["interactive", "default", "batch"]
    assert {row["workers_with_room"] for row in pool["classes"]} == {1}


def test_tenants_with_limits(harness):
    lines = "tenant requests_per_minute=1 burst_ms=120000 default"
    router = harness.router(harness.worker(), admission_config=lines)
    assert page(harness, router)["tenants"] == []
    assert harness.client(router).ask("POST", "/v1/completions", body=b"{}").status == 200
    router.must_rest()
    (row,) = page(harness, router)["tenants"]
    reset_ms = row["requests"].pop("reset_ms")
    assert row == {
        "tenant": "anonymous",
        "open": 0,
        "requests": {"per_minute": 1, "limit": 2, "remaining": 1},
    }
    assert 0 < reset_ms <= 60_000
