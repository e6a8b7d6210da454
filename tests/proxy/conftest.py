from tests.fakes.fixtures import stage

__all__ = ["stage"]
