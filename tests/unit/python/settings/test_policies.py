"""vllm_router.settings.policies: the names, here and in the core."""

import pytest

from tests.unit.python.settings.values import errors_of
from vllm_router import _core_testing as testing
from vllm_router._version import __version__
from vllm_router.router_args import FLAGS


@pytest.mark.parametrize(
    "name",
    ["kv_overlap", "kv"],
)
def test_a_policy_that_is_not_built_is_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"--policy {name} is not implemented in vllm-router {__version__} yet;" in errors_of(
        f"--policy {name}", capsys
    )


def test_policies_have_the_core_s_names() -> None:
    policy, fallback = FLAGS["policy"].kind, FLAGS["fallback_policy"].kind
    assert list(policy.names) == testing.policy_names()
    assert sorted(fallback.names) == sorted(testing.fallback_policy_names())
    for alias, name in policy.aliases.items():
        if name in policy.names:
            assert testing.canonical_policy_name(alias) == name


def test_policies_that_are_not_built_or_not_offered_are_so_in_the_core() -> None:
    policy = FLAGS["policy"].kind
    aliases = [alias for alias, name in policy.aliases.items() if name in policy.later]
    for name in [*policy.later, *policy.foreign, *aliases]:
        with pytest.raises(ValueError, match=r"not implemented yet|not offered"):
            testing.canonical_policy_name(name)
