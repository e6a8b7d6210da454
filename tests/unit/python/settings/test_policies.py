"""vllm_router.settings.policies: what the core says of them, as settings."""

import pytest

from tests.unit.python.settings.values import errors_of, parsed


@pytest.mark.parametrize(
    ("name", "policy"), [("kv", "kv_logit"), ("KV-aware", "kv_aware"), ("chwbl", "prefix_aware")]
)
def test_aliases_and_spellings_name_one_policy(name: str, policy: str) -> None:
    assert parsed(f"--policy {name}").policy == policy


def test_a_policy_of_another_router_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert "its nearest here is kv_overlap" in errors_of("--policy precise_cache_aware", capsys)
