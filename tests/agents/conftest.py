"""The agents are run only where that was asked for, and are installed."""

import pytest

from tests.agents.coding_agents import missing


@pytest.fixture(scope="session", autouse=True)
def _installed(pytestconfig: pytest.Config) -> None:
    if "agents" not in pytestconfig.option.markexpr:
        pytest.skip("runs coding agents from npm; run `make test-agents`, or pytest with `-m agents`")
    if (reason := missing()) is not None:
        pytest.skip(reason)
