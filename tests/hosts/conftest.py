"""These run in the environments that `make test-hosts` installs, one for each version of a host."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _asked_for(pytestconfig: pytest.Config) -> None:
    if "hosts" not in pytestconfig.option.markexpr:
        pytest.skip("runs in the environment of a host; run `make test-hosts`, or pytest with `-m hosts`")
