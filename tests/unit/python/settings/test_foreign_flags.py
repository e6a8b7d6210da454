"""vllm_router.settings.foreign_flags: what the command says of flags of other routers."""

import re

import pytest

from tests.unit.python.settings.values import errors_of
from vllm_router.settings.foreign_flags import KNOWN_ELSEWHERE, NEVER_BUILT
from vllm_router.settings.names import FLAGS


@pytest.mark.parametrize("name", sorted(KNOWN_ELSEWHERE))
def test_flags_of_forks_and_proposals_are_known_by_name(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dashed = "--" + name.replace("_", "-")
    assert f"error: {dashed} {KNOWN_ELSEWHERE[name]}" in errors_of(f"{dashed} 1", capsys)


@pytest.mark.parametrize("name", ["enable_mesh", "mesh_peer_urls", "router_replica_sync"])
def test_other_ways_in_which_routers_meet_name_the_one_here(name: str) -> None:
    assert KNOWN_ELSEWHERE[name].endswith("routers meet in a Redis here: --peer-sync redis://host:6379")


@pytest.mark.parametrize("name", [name for name, text in KNOWN_ELSEWHERE.items() if "implemented" in text])
def test_what_is_said_not_to_be_implemented_is_not(name: str) -> None:
    """Row 32 of the third list: prefill and decode workers and KV events were built, and said not to be."""
    found = re.search(r"belongs to ([^,]*), which is not implemented in vllm-router", KNOWN_ELSEWHERE[name])
    assert found, "name a function as the flags do, by _not_here()"
    unbuilt = {flag.not_built.function for flag in FLAGS.values() if flag.not_built}
    assert found[1] in unbuilt | set(NEVER_BUILT)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("prefill_model_labels", "--prefill-selector"),
        ("router_conditional_disagg", "--pd-bypass-uncached-tokens"),
        ("no_router_kv_events", "--kv-events off"),
        ("router_predicted_ttl_secs", "--kv-predict-ttl-secs"),
        ("kv_aware_threshold", "--policy kv_overlap"),
        ("dynamic_config_yaml", "--config-reload watch"),
        ("static_aliases", "--model-alias"),
        ("disable_health_check", "--health-check-interval-secs 0"),
        ("semantic_cache_dir", "--response-cache"),
    ],
)
def test_what_is_built_is_named(name: str, flag: str) -> None:
    """Row 32 of the third list; that each flag exists is a test of test_switch.py."""
    assert flag in KNOWN_ELSEWHERE[name]
