"""cpp/proxy/server/server.h. What happens to clients at its end is in tests/proxy/test_shutdown.py."""

from tests.fakes.harness import QUIET
from tests.fakes.wire import request
from vllm_router import Router, _core


def start(**options):
    return _core.Server(Router(policy="round_robin"), **{**QUIET, **options})


def test_two_servers_serve_one_router(harness):
    worker = harness.worker()
    first = harness.router(worker)
    second = _core.Server(first.core, **QUIET)
    client = harness.client_at(second.port)
    client.send(request())
    assert client.read_response().body == b"hello"
    assert harness.client(first).ask().body == b"hello"
    client.close()
    second.shutdown()
    assert second.wait(10)


def test_metrics_text_is_there_without_a_port():
    assert start().metrics_text()
