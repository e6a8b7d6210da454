"""What tests of the dashboard share: seconds that last 20 ms."""

import pytest

from tests.fakes.viewer import Viewer
from vllm_router import _core_testing as testing


@pytest.fixture(autouse=True)
def _fast():
    former = testing.set_dashboard_speed(50), testing.set_condition_speed(100)
    yield
    testing.set_dashboard_speed(former[0])
    testing.set_condition_speed(former[1])


@pytest.fixture
def view(harness):
    """A viewer of a router, by a connection of its own."""
    return lambda router, query="", *fields: Viewer(harness.client(router), query, *fields)
