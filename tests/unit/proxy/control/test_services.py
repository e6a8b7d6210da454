"""cpp/proxy/control/services.h: an endpoint finds a service by its type."""

from tests.fakes.harness import error_of


def test_a_service_is_found_by_the_endpoints_of_its_server_alone(harness, redis):
    worker = harness.worker()
    alone = harness.client(harness.router(worker))
    connected = harness.client(harness.router(worker, peer_sync=redis.url, peer_sync_fleet="services"))
    assert error_of(alone.ask("GET", "/ha/workers"))["code"] == "not_found"
    assert connected.ask("GET", "/ha/workers").status == 200
    assert alone.ask("GET", "/admin/kv-events").status == 200
