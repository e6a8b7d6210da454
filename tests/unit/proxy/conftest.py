"""The stage on which every test here plays."""

from collections.abc import Iterator

import pytest

from tests.fakes.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()
