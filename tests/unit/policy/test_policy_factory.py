"""cpp/policy/policy_factory.h: names, aliases, options, and the sentence for each that is wrong."""

import pytest

from vllm_router import _core_testing as testing

BUILT = [
    "random",
    "round_robin",
    "least_load",
    "power_of_two",
    "consistent_hash",
    "rendezvous_hash",
    "vllm_cache_aware",
    "prefix_aware",
    "prefix_hash",
    "cache_aware",
    "auto",
    "sticky_least_loaded",
]


def canonical(name):
    return testing.canonical_policy_name(name)


def test_the_policies_are_listed_in_the_order_of_the_documents():
    assert testing.policy_names() == BUILT
    assert sorted(testing.fallback_policy_names()) == ["least_load", "power_of_two", "random", "round_robin"]


@pytest.mark.parametrize(
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
    "name",
    [
        "kv_overlap",
        "kv_logit",
    ],
)
def test_what_is_planned_is_told_apart_from_what_is_unknown(name):
    for spelled in (name, name.replace("_", "-")):
        with pytest.raises(
            ValueError,
            match=f'UNIMPLEMENTED: policy "{spelled}".* is known but not implemented yet; .*least_load',
        ):
            canonical(spelled)
    with pytest.raises(ValueError, match="UNIMPLEMENTED"):
        testing.PolicyHarness(name)


@pytest.mark.parametrize(("alias", "name"), [("kv", "kv_logit")])
def test_an_alias_of_what_is_planned_says_of_what(alias, name):
    with pytest.raises(
        ValueError, match=f'UNIMPLEMENTED: policy "{alias}" \\({name}\\) is known but not implemented yet'
    ):
        canonical(alias)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("passthrough", "random"),
        ("bucket", "least_load"),
        ("ttft_aware", "auto"),
        ("smetric", "auto"),
        ("kv_aware", "kv_overlap, which is not implemented yet"),
        ("precise-cache-aware", "kv_overlap, which is not implemented yet"),
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


@pytest.mark.parametrize("virtual_nodes", [0, 65_537, 2**32 - 1])
def test_virtual_nodes_have_a_range(virtual_nodes):
    with pytest.raises(
        ValueError, match=f"virtual_nodes is {virtual_nodes}; .* between 1 and 65536 \\(default 160\\)"
    ):
        testing.PolicyHarness("consistent_hash", virtual_nodes=virtual_nodes)


@pytest.mark.parametrize(
    ("thousandths", "shown"), [(1, "0.001"), (999, "0.999"), (500, "0.5"), (10_001, "10.001"), (20_000, "20")]
)
def test_the_load_factor_has_a_range(thousandths, shown):
    with pytest.raises(ValueError, match=f"hash_load_factor is {shown}; .* between 1 and 10, or 0"):
        testing.PolicyHarness("consistent_hash", hash_load_factor=thousandths)
    for good in (0, 1000, 10_000):
        testing.PolicyHarness("consistent_hash", hash_load_factor=good)


@pytest.mark.parametrize("fallback", ["consistent_hash", "cache_aware", "nonsense", ""])
def test_a_fallback_must_do_without_a_key(fallback):
    with pytest.raises(
        ValueError,
        match=f'fallback_policy is "{fallback}"; it must be one of random, round_robin, least_load',
    ):
        testing.PolicyHarness("consistent_hash", fallback_policy=fallback)


def test_a_fallback_may_be_named_by_an_alias():
    testing.PolicyHarness("consistent_hash", fallback_policy="least-loaded")


def test_drain_time_is_refused_with_the_reason():
    with pytest.raises(
        ValueError, match=r"UNIMPLEMENTED: .*drain_time.* reports are not read yet; use requests or tokens"
    ):
        testing.PolicyHarness("least_load", least_load_metric="drain_time")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("least_load_metric", "request", "requests, tokens .*did you mean requests"),
        ("hash_function", "md5", "furc, xxh3"),
        ("hash_failover", "nxt", "next, first .*did you mean next"),
    ],
)
def test_a_word_that_is_no_choice_is_answered_with_the_choices(option, value, words):
    with pytest.raises(
        ValueError, match=f'INVALID_ARGUMENT: {option} is "{value}"; it must be one of {words}'
    ):
        testing.PolicyHarness("consistent_hash", **{option: value})
