"""cpp/proxy/peer_sync/peer_endpoints.h: /ha/status, /ha/health and /ha/workers, and who may ask."""

import json
import re
import time

import pytest

from tests.fakes.wire import eventually
from tests.proxy.test_peer_sync import get, open_router, status, wait_until_connected

PATHS = ["/ha/status", "/ha/workers", "/ha/health"]
LOAD = {"requests": 0, "waiting": 0, "queued_prefill": 0, "expected_output": 0, "context": 0}


def test_status(harness, redis):
    worker = harness.worker()
    one = open_router(harness, [worker], redis, router_name="one", peer_sync_fleet="F")
    other = open_router(harness, [worker], redis, router_name="other", peer_sync_fleet="F")
    wait_until_connected(harness, one, other)
    eventually(lambda: status(harness, one)["members"][0]["heard_of_this_router"] > 0)
    said = status(harness, one)
    assert sorted(said) == ["decisions", "fleet", "members", "redis", "self"]
    assert said["fleet"] == "F"
    assert re.fullmatch("[0-9a-f]{16}", said["self"].pop("router"))
    assert abs(said["self"].pop("started_ms") - time.time() * 1000) < 120_000
    assert said["self"].pop("sequence") > 0
    assert said["self"] == {"name": "one"}
    assert said["redis"].pop("outage_seconds") >= 0
    assert said["redis"] == {"url": redis.url + "/0", "up": True, "alone": False, "trouble": ""}
    (member,) = said["members"]
    assert member.pop("router") == status(harness, other)["self"]["router"]
    for name in ("heard_ms", "sequence", "heard_of_this_router"):
        assert member.pop(name) >= 0
    assert member.pop("version")
    assert member == {
        "name": "other",
        "state": "live",
        "gaps": 0,
        "requests": 0,
        "decisions_understood": True,
    }


def test_health(harness, redis):
    router = open_router(harness, [harness.worker()], redis)
    eventually(lambda: get(harness, router, "/ha/health").status == 200)
    assert json.loads(get(harness, router, "/ha/health").body) == {"peer_sync": "up", "trouble": ""}
    redis.kill()
    eventually(lambda: get(harness, router, "/ha/health").status == 503)
    said = json.loads(get(harness, router, "/ha/health").body)
    assert said["peer_sync"] == "down"
    eventually(lambda: json.loads(get(harness, router, "/ha/health").body)["peer_sync"] == "alone")
    assert get(harness, router, "/health").status == 200  # it is no reason to take the router out of service


def test_workers(harness, redis):
    workers = [harness.worker(), harness.worker()]
    router = open_router(harness, workers, redis)
    ticket = router.core.select(prompt="x")
    said = json.loads(get(harness, router, "/ha/workers").body)["workers"]
    ticket.finish()
    assert [row["url"] for row in said] == [worker.url for worker in workers]
    for row in said:
        own = row.pop("own")
        assert own["requests"] == (row.pop("url") == ticket.worker_url)
        assert own.keys() == LOAD.keys()
        assert row == {"peers": LOAD, "polled": {"requests": 0, "waiting": 0}}


def test_only_health_is_for_anybody(harness, redis, tmp_path):
    (tmp_path / "admin").write_text("sk-admin-key\n")
    router = open_router(harness, [harness.worker()], redis, admin_api_key_file=str(tmp_path / "admin"))
    client = harness.client_at(router.server.admin_port)
    key = ("Authorization", "Bearer sk-admin-key")
    eventually(lambda: client.ask("GET", "/ha/health").status == 200)
    for path in ("/ha/status", "/ha/workers"):
        assert client.ask("GET", path).status == 401
        assert client.ask("GET", path, ("Authorization", "Bearer wrong")).status == 401
        assert client.ask("GET", path, key).status == 200


@pytest.mark.parametrize("path", PATHS)
def test_methods(harness, redis, path):
    router = open_router(harness, [harness.worker()], redis)
    client = harness.client_at(router.server.admin_port)
    eventually(lambda: client.ask("GET", "/ha/health").status == 200)
    for method, expected in (("POST", 405), ("DELETE", 405)):
        assert client.ask(method, path, body=b"").status == expected
