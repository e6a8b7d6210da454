import pytest

from tests.fakes.authority import Authority
from tests.fakes.fixtures import harness, master, other_publisher, publisher, redis

__all__ = ["harness", "master", "other_publisher", "publisher", "redis"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Who certifies the router and its workers."""
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """Another one, whom nobody trusts."""
    return Authority(tmp_path_factory.mktemp("other"))
