"""What tests of conditions share: a watch that looks a hundred times a second."""

import json

import pytest

from vllm_router import _core_testing as testing


@pytest.fixture(autouse=True)
def _fast():
    former = testing.set_condition_speed(100)
    yield
    testing.set_condition_speed(former)


@pytest.fixture
def conditions():
    """(condition, worker, model) of each that GET /admin/status has."""

    def ask(client):
        said = json.loads(client.ask("GET", "/admin/status").body)
        return [(row["condition"], row.get("worker"), row.get("model")) for row in said["conditions"]]

    return ask
