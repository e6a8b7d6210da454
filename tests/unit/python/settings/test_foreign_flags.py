"""vllm_router.settings.foreign_flags: what the command says of flags of other routers."""

import pytest

from tests.unit.python.settings.values import errors_of
from vllm_router.settings.foreign_flags import KNOWN_ELSEWHERE


@pytest.mark.parametrize("name", sorted(KNOWN_ELSEWHERE))
def test_flags_of_forks_and_proposals_are_known_by_name(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dashed = "--" + name.replace("_", "-")
    assert f"error: {dashed} {KNOWN_ELSEWHERE[name]}" in errors_of(f"{dashed} 1", capsys)


@pytest.mark.parametrize("name", ["enable_mesh", "mesh_peer_urls", "router_replica_sync"])
def test_other_ways_in_which_routers_meet_name_the_one_here(name: str) -> None:
    assert KNOWN_ELSEWHERE[name].endswith("routers meet in a Redis here: --peer-sync redis://host:6379")
