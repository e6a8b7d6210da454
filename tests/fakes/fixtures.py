"""Fixtures for a conftest.py to import."""

from collections.abc import Iterator

import pytest

from tests.fakes.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A router between fake workers and raw clients, checked for leftovers when the test is over."""
    stage = Stage()
    yield stage
    stage.close()
