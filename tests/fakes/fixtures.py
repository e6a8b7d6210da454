"""Fixtures for a conftest.py to import."""

from collections.abc import Iterator

import pytest

from tests.fakes.harness import Harness


@pytest.fixture
def harness() -> Iterator[Harness]:
    """A router between fake workers and raw clients, checked for leftovers when the test is over."""
    harness = Harness()
    yield harness
    harness.close()
