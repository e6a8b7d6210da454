"""Fixtures for a conftest.py to import."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.harness import Harness
from tests.fakes.redis_server import RedisServer
from vllm_router.testing import FakeMooncakeMaster, KvEventPublisher


@pytest.fixture
def harness() -> Iterator[Harness]:
    """A router between fake workers and raw clients, checked for leftovers when the test is over."""
    harness = Harness()
    yield harness
    harness.close()


@pytest.fixture
def publisher() -> Iterator[KvEventPublisher]:
    """An engine's publisher of KV events."""
    with KvEventPublisher() as made:
        yield made


@pytest.fixture
def other_publisher() -> Iterator[KvEventPublisher]:
    with KvEventPublisher() as made:
        yield made


@pytest.fixture
def master() -> Iterator[FakeMooncakeMaster]:
    """The master of a shared pool."""
    with FakeMooncakeMaster() as made:
        yield made


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A real one, without data."""
    with RedisServer(tmp_path) as server:
        yield server
