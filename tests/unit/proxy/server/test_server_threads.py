"""cpp/proxy/server/server_threads.h: they serve, and they end."""

import time

import pytest

from tests.fakes.harness import QUIET
from vllm_router import Router, _core


@pytest.mark.parametrize("threads", [0, 1, 2, 8])
def test_any_number_of_threads_serves(harness, threads):
    router = harness.router(harness.worker(), threads=threads)
    for _ in range(8):
        assert harness.client(router).ask().body == b"hello"


def test_waiting_takes_no_longer_than_asked():
    server = _core.Server(Router(policy="round_robin"), **QUIET)
    since = time.monotonic()
    assert server.wait(0.05) is False
    assert server.wait(0) is False
    assert time.monotonic() - since < 5
    server.shutdown()
    assert server.wait() is True
    assert server.wait(0) is True
    assert server.exchanges_cut == 0
