"""python/vllm_router/replay/policies.py: names with options, sweeps, groups."""

import pytest

from tests.rows import for_each_row
from vllm_router.replay.policies import PolicySpec, flags_of_policy, parse_policies
from vllm_router.replay.trace import TraceError
from vllm_router.router_args import BUILT_POLICIES


def test_all_are_the_routers_own():
    assert [spec.name for spec in parse_policies(["all"])] == list(BUILT_POLICIES)
    assert not any(spec.comparison for spec in parse_policies(["all"]))
    assert all(spec.comparison for spec in parse_policies(["everything"])[len(BUILT_POLICIES) :])


def test_a_policy_comes_with_options_in_their_types():
    (spec,) = parse_policies(["consistent_hash:hash_load_factor=1.25,virtual-nodes=100"])
    assert spec == PolicySpec("consistent_hash", {"hash_load_factor": 1.25, "virtual_nodes": 100})
    assert spec.label == "consistent_hash:hash_load_factor=1.25,virtual_nodes=100"


def test_several_values_are_a_sweep_and_each_policy_counts_once():
    labels = [
        spec.label for spec in parse_policies(["prefix_aware:virtual_nodes=50|150", "random", "random"])
    ]
    assert labels == ["prefix_aware:virtual_nodes=50", "prefix_aware:virtual_nodes=150", "random"]
    assert len(parse_policies(["vllm_cache_aware:cache_threshold=0.3|0.5,load_factor=1.25|2"])) == 4


def test_an_alias_is_the_policy_that_it_means():
    assert parse_policies(["least_loaded"])[0].name == "least_load"


def test_the_core_gets_the_options_and_the_caches_size():
    (spec,) = parse_policies(["vllm_cache_aware:cache_threshold=0.4"])
    core = spec.as_core(block_size=512, cache_blocks=900, seed=7)
    chosen = {name: core[name] for name in ("policy", "seed", "cache_threshold", "max_blocks_per_worker")}
    assert chosen == {
        "policy": "vllm_cache_aware",
        "seed": 7,
        "cache_threshold": 0.4,
        "max_blocks_per_worker": 900,
    }
    (spec,) = parse_policies(["vllm_cache_aware:max_blocks_per_worker=50"])
    assert spec.as_core(512, 900, 7)["max_blocks_per_worker"] == 50


def test_the_flags_of_a_policy_ask_the_server_for_it():
    (spec,) = parse_policies(["vllm_cache_aware:cache_threshold=0.4,max_blocks_per_worker=50"])
    assert flags_of_policy(spec) == (
        "--policy vllm_cache_aware --cache-threshold 0.4 --max-blocks-per-worker 50"
    )


def test_a_comparison_policy_takes_events_and_a_capacity():
    (spec,) = parse_policies(["compare_lmetric:events_delay_s=0.05,max_blocks_per_worker=70"])
    assert spec.comparison
    assert spec.label == "compare_lmetric:events_delay_s=0.05,max_blocks_per_worker=70"
    core = spec.as_core(512, 900, 7)
    assert (core["events_delay_s"], core["max_blocks_per_worker"], core["seed"]) == (0.05, 70, 7)


@for_each_row(
    ("word", "sentence"),
    [
        ("compare_lmetric:events=1", "compare_lmetric has no option events; did you mean events_delay_s?"),
        ("compare_lmetric:events_delay_s=x", "events_delay_s is x; it must be a number, 0 or more"),
        ("compare_lmetric:events_delay_s=-1", "events_delay_s is -1; it must be a number, 0 or more"),
        ("compare_lmetric:events_delay_s=nan", "events_delay_s is nan; it must be a number, 0 or more"),
        ("compare_lmetric:max_blocks_per_worker=0", "max_blocks_per_worker is 0; it must be a whole number"),
        ("lest_load", "policy is 'lest_load'; it must be one of random, round_robin"),
        ("lest_load", "did you mean least_load?"),
        ("all:x=1", "all:x=1 gives options to all; options belong to one policy"),
        ("random:", None),
        ("random:x", "random:x has 'x'; an option must be name=value"),
        ("random:x=", "random:x= has 'x='; an option must be name=value"),
        (
            "consistent_hash:virtual_node=5",
            "consistent_hash has no option virtual_node; did you mean virtual_nodes?",
        ),
        ("random:virtual_nodes=5", "random has no option virtual_nodes"),
        ("prefix_aware:virtual_nodes=5,virtual_nodes=6", "has virtual_nodes twice; keep one of them"),
        ("prefix_aware:virtual_nodes=x", "virtual_nodes"),
        ("prefix_aware:virtual_nodes=0", "virtual_nodes is 0; it must be a whole number between 1 and"),
        ("consistent_hash:hash_load_factor=0.5", "hash_load_factor is 0.5"),
        ("vllm_cache_aware:block_size=16", "vllm_cache_aware has no option block_size"),
        ("vllm_cache_aware:seed=1", "vllm_cache_aware has no option seed"),
    ],
)
def test_a_mistake_is_one_sentence(word, sentence):
    if sentence is None:
        assert parse_policies([word])
        return
    with pytest.raises(TraceError) as error:
        parse_policies([word])
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_no_policy_is_one_sentence():
    with pytest.raises(TraceError, match="no policy is named; name one, or all"):
        parse_policies([])
