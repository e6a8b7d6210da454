from tests.fakes.fixtures import harness, other_publisher, publisher

__all__ = ["harness", "other_publisher", "publisher"]
