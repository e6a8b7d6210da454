"""vllm_router.settings.policies. tests/unit/python/test_option_tables.py compares names with the core."""

import pytest

from tests.unit.python.settings.values import errors_of
from vllm_router._version import __version__


@pytest.mark.parametrize(
    "name",
    ["kv_overlap", "kv"],
)
def test_a_policy_that_is_not_built_is_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"--policy {name} is not implemented in vllm-router {__version__} yet;" in errors_of(
        f"--policy {name}", capsys
    )
