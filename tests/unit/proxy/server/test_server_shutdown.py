"""cpp/proxy/server/server_shutdown.cc; what clients see is in tests/proxy/test_shutdown.py."""

from tests.fakes.harness import QUIET
from vllm_router import Router, _core


def test_settling_takes_its_time_unless_hurried():
    server = _core.Server(Router(policy="round_robin"), **{**QUIET, "shutdown_settle_secs": 100})
    server.shutdown()
    assert server.wait(0.1) is False
    server.shutdown()
    assert server.wait(10) is True


def test_a_server_that_serves_nobody_ends_at_once():
    server = _core.Server(Router(policy="round_robin"), **{**QUIET, "shutdown_settle_secs": 0})
    server.shutdown()
    assert server.wait(60) is True
    assert server.exchanges_cut == 0
