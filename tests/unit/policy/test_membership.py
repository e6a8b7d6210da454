"""cpp/policy/membership.h, through the index and the trees that carry their workers over."""

import pytest

from vllm_router import _core_testing as testing

URLS = [f"http://w{number}:8000" for number in range(5)]


def held(policy: testing.PolicyHarness, url: str) -> int:
    """Blocks of the prompt [1, 2] that the worker holds; asking gives them to it."""
    position = policy.urls.index(url)
    others = [other for other in range(len(policy.urls)) if other != position]
    return policy.choose_blocks([1, 2], others, prompt_tokens=1000)[2]


@pytest.mark.parametrize("leaves", range(4))
def test_those_that_stay_keep_what_they_have_wherever_they_stand(leaves):
    policy = testing.PolicyHarness("vllm_cache_aware", seed=1)
    for url in URLS[:4]:
        policy.add(url)
    for url in URLS[:4:2]:  # the first and the third
        held(policy, url)
    policy.remove(URLS[leaves])
    policy.add(URLS[4])
    policy.add(URLS[leaves])  # comes back as a new worker, at the end
    expected = dict.fromkeys(URLS, 0) | dict.fromkeys(URLS[:4:2], 2) | {URLS[leaves]: 0}
    assert {url: held(policy, url) for url in URLS} == expected


def test_the_prefix_trees_carry_over_in_the_same_way():
    policy = testing.PolicyHarness("cache_aware", seed=1)
    for url in URLS[:3]:
        policy.add(url)
    for _ in range(3):
        policy.choose_prompt(b"x" * 500, tried=[])
    sizes = dict(zip(policy.urls, policy.cache_sizes(), strict=True))
    gone = next(url for url in URLS[:3] if sizes[url] == 0)
    policy.remove(gone)
    policy.add(gone)
    assert dict(zip(policy.urls, policy.cache_sizes(), strict=True)) == sizes
