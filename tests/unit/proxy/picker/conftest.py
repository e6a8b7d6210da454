import pytest

from tests.fakes.data_plane import planes


@pytest.fixture
def data_plane(harness):
    yield from planes(harness)
