from tests.fakes.fixtures import harness

__all__ = ["harness"]
