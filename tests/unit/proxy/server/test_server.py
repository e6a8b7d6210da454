"""cpp/proxy/server/server.h. What happens to clients at its end is in tests/proxy/test_shutdown.py."""

import time

import pytest

from tests.fakes.harness import QUIET
from tests.fakes.wire import eventually, request, response
from vllm_router import Router, _core


def start(**options):
    return _core.Server(Router(policy="round_robin"), **{**QUIET, **options})


def test_it_says_where_it_listens():
    server = start(prometheus_port=0)
    assert server.port > 0
    assert server.metrics_port > 0
    assert server.metrics_port != server.port


@pytest.mark.parametrize("threads", [0, 1, 2, 8])
def test_any_number_of_threads_serves(harness, threads):
    router = harness.router(harness.worker(), threads=threads)
    for _ in range(8):
        assert harness.client(router).ask().body == b"hello"


def test_waiting_takes_no_longer_than_asked():
    server = start()
    since = time.monotonic()
    assert server.wait(0.05) is False
    assert server.wait(0) is False
    assert time.monotonic() - since < 5
    server.shutdown()
    assert server.wait() is True
    assert server.wait(0) is True
    assert server.exchanges_cut == 0


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


def test_what_hosts_have_to_do_and_what_their_caches_saved(harness):
    usage = b'{"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}}'
    worker = harness.worker(lambda connection, _: connection.send(response(200, usage)))
    other = harness.worker()
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1", other)
    client = harness.client(router)
    for _ in range(6):
        assert client.ask("POST", "/v1/completions", body=b"{}").status == 200
    ticket = router.core.select()
    eventually(lambda: sum(cached for _, _, cached in router.server.host_uses()) == 4 * 8)
    router.wait_for_load(1)
    uses = {url: (requests, cached) for url, requests, cached in router.server.host_uses()}
    is_at_worker = ticket.base_url == worker.url
    assert uses == {worker.url: (int(is_at_worker), 32), other.url: (int(not is_at_worker), 0)}
    ticket.finish()
