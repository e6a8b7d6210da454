from tests.fakes.fixtures import harness, master, other_publisher, publisher, redis

__all__ = ["harness", "master", "other_publisher", "publisher", "redis"]
