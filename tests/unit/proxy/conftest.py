from tests.fakes.fixtures import harness, master, other_publisher, publisher

__all__ = ["harness", "master", "other_publisher", "publisher"]
