"""cpp/policy/policy_registry.h: names, aliases, and the sentence for each that is wrong."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core
from vllm_router import _core_testing as testing

BUILT = testing.policy_names()


def canonical(name):
    return testing.canonical_policy_name(name)


def test_a_policy_has_one_name_and_no_other_has_it():
    names = [name for entry in _core.policies() for name in (entry["name"], *entry["aliases"])]
    assert len(names) == len(set(names))
    assert [testing.PolicyHarness(name).name for name in BUILT] == BUILT


@for_each_row(
    ("name", "expected"),
    [
        ("least_loaded", "least_load"),
        ("least-request", "least_load"),
        ("consistent_hashing", "consistent_hash"),
        ("Consistent-Hash", "consistent_hash"),
        ("manual", "sticky_least_loaded"),
        *((name, name) for name in BUILT),
        *((name.replace("_", "-"), name) for name in BUILT),
    ],
)
def test_names_and_aliases_are_accepted(name, expected):
    assert canonical(name) == expected
    assert testing.PolicyHarness(name).name == expected


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("passthrough", "random"),
        ("bucket", "least_load"),
        ("ttft_aware", "auto"),
        ("smetric", "auto"),
        ("precise-cache-aware", "kv_overlap"),
    ],
)
def test_what_other_routers_offer_is_answered_with_the_nearest(name, nearest):
    with pytest.raises(
        ValueError, match=f'INVALID_ARGUMENT: policy "{name}" is not offered; the nearest to it is {nearest};'
    ):
        canonical(name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("round_robbin", "round_robin"),
        ("RoundRobin", "round_robin"),
        ("consistent_hsh", "consistent_hash"),
        ("cache_awre", "cache_aware"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(name, nearest):
    with pytest.raises(
        ValueError, match=f'INVALID_ARGUMENT: policy "{name}" is unknown; did you mean {nearest}\\?'
    ):
        canonical(name)


@pytest.mark.parametrize("name", ["", "zzzzzzzz", "🎲"])
def test_a_name_like_no_other_is_answered_with_the_list(name):
    with pytest.raises(ValueError, match="is unknown; known policies: random, round_robin, least_load"):
        canonical(name)


@pytest.mark.parametrize("fallback", ["consistent_hash", "cache_aware", "nonsense", ""])
def test_a_fallback_must_do_without_a_key(fallback):
    with pytest.raises(
        ValueError,
        match=f'fallback_policy is "{fallback}"; it must be one of random, round_robin, least_load',
    ):
        testing.PolicyHarness("consistent_hash", fallback_policy=fallback)


def test_a_fallback_may_be_named_by_an_alias():
    testing.PolicyHarness("consistent_hash", fallback_policy="least-loaded")


def test_a_policy_that_may_be_a_fallback_needs_none():
    assert sorted(testing.fallback_policy_names()) == ["least_load", "power_of_two", "random", "round_robin"]
    fallbacks = [entry for entry in _core.policies() if entry["may_be_fallback"]]
    assert [entry["name"] for entry in fallbacks if "fallback_policy" in entry["options"]] == []
