"""cpp/policy/policy_options.h: ranges and words, and the sentence for each that is wrong."""

import pytest

from vllm_router import _core_testing as testing


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
