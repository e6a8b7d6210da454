"""cpp/proxy/admin/stats_table.h, as harnesses of policies read one."""

from vllm_router import _core_testing as testing

A, B = "http://a:8000", "http://b:8000"


def test_it_has_the_figures_of_its_group_by_worker():
    policy = testing.PolicyHarness("cache_aware", seed=1)
    policy.add(A)
    policy.add(B)
    policy.choose_prompt(b"x" * 500)
    assert policy.cache_sizes() == list(policy.stats()["cache_routing"]["workers"].values())
    assert sorted(policy.cache_sizes()) == [0, 500]


def test_what_another_group_reports_is_not_in_it():
    policy = testing.PolicyHarness("auto", seed=1)  # reports `workers` as well, in another group
    policy.add(A)
    policy.choose_blocks([1, 2], prompt_tokens=100)
    assert policy.stats()["block_index"]["workers"] == {A: 2}
    assert policy.cache_sizes() == [0]
