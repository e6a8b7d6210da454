"""Fixtures of the redis room."""

import pytest

from tests.fakes.redis_server import FakeRedis, RedisServer
from tests.fakes.wire import eventually
from vllm_router import _core_testing as testing


@pytest.fixture
def fake():
    with FakeRedis() as redis:
        yield redis


@pytest.fixture
def server(tmp_path):
    with RedisServer(tmp_path) as redis:
        yield redis


@pytest.fixture
def open_link():
    """Opens links, which must end without connections that do not."""
    links = []

    def opened(url, *, waits=True, **options):
        links.append(link := testing.RedisLink(url, **options))
        if waits:
            eventually(lambda: link.stats()["idle"] == options.get("connections", 1))
        return link

    yield opened
    for link in links:
        assert link.stop() == 0
