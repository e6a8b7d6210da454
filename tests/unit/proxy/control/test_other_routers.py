"""cpp/proxy/control/other_routers.h: what a server knows of the others (tests/proxy/test_peer_sync.py)."""

from tests.proxy.test_peer_sync import get, open_router, wait_until_connected


def test_a_router_without_others_leads(harness):
    assert harness.router(harness.worker()).server.leads_peers


def test_an_admins_call_says_at_how_many_routers_it_counts(harness, redis):
    worker = harness.worker()
    one, other = (open_router(harness, [worker], redis, peer_sync_fleet="others") for _ in range(2))
    wait_until_connected(harness, one, other)
    get(harness, one, "/ha/status")
    reply = one.admin_client.ask("POST", f"/admin/drain?url={worker.url}")
    assert reply.status == 202
    assert b"this router of 2" in reply.body
