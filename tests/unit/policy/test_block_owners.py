"""cpp/policy/block_owners.h, through the policies that own one."""

import pytest

from vllm_router import _core_testing as testing

A, B, C = (f"http://{name}:8000" for name in "abc")
POLICIES = ("vllm_cache_aware", "auto")


@pytest.fixture(params=POLICIES)
def policy(request):
    made = testing.PolicyHarness(request.param, seed=1)
    for url in (A, B):
        made.add(url)
    return made


def matched(policy: testing.PolicyHarness, position: int, blocks: list[int]) -> int:
    others = [other for other in range(len(policy.urls)) if other != position]
    return policy.choose_blocks(blocks, others, prompt_tokens=1000)[2]


def test_a_worker_that_joins_holds_nothing(policy):
    matched(policy, 0, [1, 2])
    policy.add(C)
    assert [matched(policy, position, [1, 2]) for position in range(3)] == [2, 0, 0]


def test_a_worker_that_leaves_is_forgotten_and_the_others_keep_what_they_hold(policy):
    matched(policy, 0, [1, 2])
    matched(policy, 1, [5, 6, 7])
    policy.remove(A)
    assert matched(policy, 0, [5, 6, 7]) == 3
    policy.add(A)
    assert matched(policy, 1, [1, 2]) == 0


def test_a_worker_that_is_ill_for_a_while_keeps_what_it_holds(policy):
    matched(policy, 0, [1, 2])
    policy.set_healthy(A, False)
    policy.set_healthy(A, True)
    assert matched(policy, 0, [1, 2]) == 2
