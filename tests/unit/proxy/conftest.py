import pytest

from tests.fakes.fixtures import harness, master, other_publisher, publisher, redis
from tests.fakes.redis_server import FakeRedis
from tests.fakes.wire import eventually
from vllm_router import _core_testing as testing

__all__ = ["harness", "master", "other_publisher", "publisher", "redis"]


@pytest.fixture
def fake():
    """A Redis that has no response and no generation, until a test says otherwise."""
    with FakeRedis() as server:
        server.replies.update({"GET": b"$-1\r\n", "HGETALL": b"*0\r\n", "SCAN": b"*2\r\n$1\r\n0\r\n*0\r\n"})
        yield server


@pytest.fixture
def open_responses():
    """Opens stores of cached responses, whose work must end."""
    opened = []

    def open_one(url, *, waits=True, **options):
        opened.append(responses := testing.RedisResponses(url, **options))
        if waits:
            idle = options.get("connections", 1) + 1
            eventually(lambda: responses.stats()["usable"] and responses.stats()["idle"] == idle)
        return responses

    yield open_one
    for responses in opened:
        assert responses.stop()
