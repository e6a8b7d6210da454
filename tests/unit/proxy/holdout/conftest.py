"""What tests of the hold-out share: conversations that end 0.5 s after their last turn."""

import pytest

from tests.fakes.held_out import PERCENT, secret_file
from vllm_router import _core_testing as testing


@pytest.fixture(autouse=True)
def _fast():
    former = testing.set_holdout_speed(2000)
    yield
    testing.set_holdout_speed(former)


@pytest.fixture
def held_out(tmp_path):
    """Options of a server."""
    return {"holdout_percent": PERCENT, "holdout_secret_file": secret_file(tmp_path)}
