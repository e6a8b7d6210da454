"""cpp/policy/kv_index.h, through the policies that read one."""

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


# ---- block sizes of workers


def told(policy: testing.PolicyHarness, url: str, block_tokens: int) -> None:
    policy.set_cache_size(url, block_tokens=block_tokens)


@pytest.fixture(params=POLICIES)
def mixed(request):
    made = testing.PolicyHarness(request.param, seed=1, worker_block_sizes=True)
    for url in (A, B):
        made.add(url)
    return made


@pytest.mark.parametrize(
    ("size", "held"),
    [(None, 5), (1, 5), (8, 5), (16, 5), (24, 4), (32, 4), (48, 3), (64, 4), (80, 5), (128, 0), (65_536, 0)],
)
def test_a_match_counts_in_complete_blocks_of_the_worker(mixed, size, held):
    """mending row 31: one size was believed of all workers."""
    matched(mixed, 0, [1, 2, 3, 4, 5])
    if size is not None:
        told(mixed, A, size)
    assert matched(mixed, 0, [1, 2, 3, 4, 5, 6, 7, 8]) == held


def test_a_plain_size_rounds_nothing(policy):
    matched(policy, 0, [1, 2, 3, 4, 5])
    told(policy, A, 128)
    assert matched(policy, 0, [1, 2, 3, 4, 5, 6]) == 5


def test_each_worker_has_its_own(mixed):
    for position in (0, 1):
        matched(mixed, position, [1, 2, 3])
    told(mixed, A, 32)
    assert [matched(mixed, position, [1, 2, 3]) for position in (0, 1)] == [2, 3]


def test_another_size_is_another_engine_with_an_empty_cache(mixed):
    told(mixed, A, 32)
    matched(mixed, 0, [1, 2, 3, 4])
    told(mixed, A, 32)
    assert matched(mixed, 0, [1, 2, 3, 4]) == 4
    told(mixed, A, 64)
    assert matched(mixed, 0, [1, 2, 3, 4]) == 0
    assert matched(mixed, 0, [1, 2, 3, 4]) == 4


def test_who_does_not_tell_keeps_what_was_told(mixed):
    told(mixed, A, 32)
    matched(mixed, 0, [1, 2, 3])
    mixed.set_cache_size(A, 4 * 16 * 100)
    assert matched(mixed, 0, [1, 2, 3]) == 2


def test_the_next_worker_in_a_place_does_not_inherit_the_size(mixed):
    told(mixed, A, 128)
    mixed.remove(A)
    mixed.add(C)
    mixed.remove(B)
    matched(mixed, 0, [1, 2])
    assert matched(mixed, 0, [1, 2]) == 2


# ---- What workers tell of prefixes ----------------------------------------------------------------------

DIGEST = b"p" * 32
BLOCKS = [*range(1, 11)]  # 160 tokens


def with_prefixes(policy="kv_overlap", **options):
    harness = testing.PolicyHarness(policy, seed=1, kv_index_max_entries=100, **options)
    for url in (A, B):
        harness.add(url)
    return harness


@pytest.mark.parametrize("policy", ["auto", "vllm_cache_aware", "kv_logit", "kv_aware", "kv_overlap"])
@pytest.mark.parametrize("on_gpu", [True, False])
def test_who_holds_a_prefix_is_matched_for_its_tokens(policy, on_gpu):
    harness = with_prefixes(policy)
    assert harness.put_prefix(B, DIGEST, 120, on_gpu)
    assert harness.choose_blocks(BLOCKS, prompt_tokens=160, digest=b"other" + DIGEST[5:])[2] == 0
    harness = with_prefixes(policy)
    harness.put_prefix(B, DIGEST, 120, on_gpu)
    position, _, matched, total = harness.choose_blocks(BLOCKS, prompt_tokens=160, digest=DIGEST)
    assert (position, matched, total) == (1, 7, 10)  # complete blocks of 120 tokens


def test_a_prefix_is_never_longer_than_the_prompt():
    harness = with_prefixes()
    harness.put_prefix(B, DIGEST, 1_000_000, True)
    assert harness.choose_blocks(BLOCKS, prompt_tokens=160, digest=DIGEST)[2] == 10


def test_the_gpu_beats_storage_at_equal_tokens():
    for gpu, storage in ((A, B), (B, A)):
        harness = with_prefixes()
        harness.put_prefix(storage, DIGEST, 160, False)
        harness.put_prefix(gpu, DIGEST, 160, True)
        assert harness.urls[harness.choose_blocks(BLOCKS, prompt_tokens=160, digest=DIGEST)[0]] == gpu


def test_block_events_that_tell_everything_are_believed_instead():
    harness = with_prefixes()
    harness.put_prefix(B, DIGEST, 160, True)
    harness.report_blocks(B, BLOCKS[:4], 0)
    assert harness.choose_blocks(BLOCKS, [0], prompt_tokens=160, digest=DIGEST)[2] == 4


def test_a_worker_that_left_or_lost_its_cache_holds_no_prefix():
    harness = with_prefixes()
    harness.put_prefix(B, DIGEST, 160, True)
    harness.remove(B)
    harness.add(B)
    assert harness.choose_blocks(BLOCKS, [0], prompt_tokens=160, digest=DIGEST)[2] == 0
