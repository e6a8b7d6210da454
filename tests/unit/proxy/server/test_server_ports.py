"""cpp/proxy/server/server_ports.h. How connections are admitted is in tests/proxy/test_limits.py."""

from tests.fakes.harness import QUIET
from vllm_router import Router, _core


def test_it_says_where_it_listens():
    server = _core.Server(Router(policy="round_robin"), **QUIET, prometheus_port=0)
    assert server.port > 0
    assert server.metrics_port > 0
    assert server.metrics_port != server.port
    assert server.admin_port is None


def test_a_connection_beyond_the_limit_replaces_an_idle_one(harness):
    router = harness.router(harness.worker(), max_connections=1)
    first = harness.client(router)
    assert first.ask().status == 200
    assert harness.client(router).ask().status == 200
    assert first.ending() == "eof"
    assert "vllm_router_client_connections_evicted_total 1\n" in router.server.metrics_text()
