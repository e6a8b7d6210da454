"""cpp/policy/kv_overlap.h: its examples, and where the ring decides. Random stories: tests/property."""

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

A, B, C = (f"http://{name}:8000" for name in "abc")
PROMPT = list(range(1, 129))  # 128 blocks of 16 tokens: 2,048
DIGEST = b"d" * 32


def fleet(**options) -> testing.PolicyHarness:
    policy = testing.PolicyHarness("kv_overlap", seed=1, **options)
    for url in (A, B, C):
        policy.add(url)
    return policy


def test_the_example():
    scores = [
        testing.overlap_score(2048, 2048, 8, 8, 1),
        testing.overlap_score(512, 2048, 2, 8, 1),
        testing.overlap_score(0, 2048, 0, 8, 0.95),
    ]
    assert scores == pytest.approx([0.7, 0.475, 0.395])


def test_the_highest_score_of_the_example_is_chosen():
    policy = fleet(kv_load_factor=0)
    policy.report_blocks(A, PROMPT, 0)
    policy.report_blocks(B, PROMPT[:32], 0)
    policy.set_load(A, 8)
    policy.set_load(B, 2)
    assert policy.choose_blocks(PROMPT, prompt_tokens=2048) == (0, "kv_aware", 128, 128)


def test_storage_loses_to_the_gpu_at_equal_tokens_and_load():
    assert testing.overlap_score(100, 100, 0, 0, 1) == pytest.approx(1)
    assert testing.overlap_score(60, 100, 0, 0, 1) == pytest.approx(0.76)
    for slower in (1, 2):
        policy = fleet()
        policy.report_blocks(A, PROMPT, slower)
        policy.report_blocks(C, PROMPT, 0)
        assert policy.choose_blocks(PROMPT, prompt_tokens=2048)[:2] == (2, "kv_aware")


def test_an_idle_worker_with_storage_beats_a_busy_one_with_the_gpu():
    policy = fleet(kv_load_factor=0)
    policy.report_blocks(A, PROMPT, 1)
    policy.report_blocks(B, PROMPT, 0)
    policy.set_load(B, 4)
    assert policy.choose_blocks(PROMPT, prompt_tokens=2048)[:2] == (0, "kv_aware")


def test_too_small_a_share_of_the_prompt_leaves_it_to_the_ring():
    by_ring = fleet().choose_blocks([], prompt_tokens=1, digest=DIGEST)[0]
    other = 0 if by_ring != 0 else 1
    for basis, expected in (("prompt", (by_ring, "prefix_hash")), ("fleet_max", (other, "kv_aware"))):
        policy = fleet(kv_overlap_basis=basis)
        policy.report_blocks((A, B, C)[other], PROMPT[:32], 0)
        assert policy.choose_blocks(PROMPT, prompt_tokens=10_000, digest=DIGEST)[:2] == expected


def test_with_nothing_cached_it_is_prefix_aware():
    policy, ring = fleet(), testing.PolicyHarness("prefix_aware", seed=1)
    for url in (A, B, C):
        ring.add(url)
    for byte in range(64):
        digest = bytes([byte * 4]) * 32
        expected = ring.choose(digest=digest)
        assert policy.choose_blocks([1000 + byte], prompt_tokens=16, digest=digest)[:2] == expected
    assert policy.choose_blocks([5000], prompt_tokens=16)[1] == "fallback"


def test_a_holder_above_its_bound_is_passed_over():
    policy = fleet()
    policy.report_blocks(A, PROMPT, 0)
    policy.set_load(A, 8)  # of a mean of 8 / 3: above twice the mean
    assert policy.choose_blocks(PROMPT, prompt_tokens=2048)[0] != 0
    policy = fleet(kv_load_factor=0)
    policy.report_blocks(A, PROMPT, 0)
    policy.set_load(A, 8)
    assert policy.choose_blocks(PROMPT, prompt_tokens=2048)[0] == 0


@pytest.mark.parametrize(
    ("end", "status", "counts"),
    [
        ("finished", 200, False),
        ("finished", 404, False),
        ("finished", 500, True),
        ("worker_failed", 0, True),
        ("client_gone", 0, False),
        ("not_sent", 0, False),
    ],
)
def test_a_worker_whose_requests_fail_loses_to_an_equal_one(end, status, counts):
    policy = fleet()
    for url in (A, B):
        policy.report_blocks(url, PROMPT, 0)
    assert policy.choose_blocks([1], [1, 2], prompt_tokens=16)[0] == 0
    policy.end_request(0, end, status)
    chosen = set()
    for _ in range(30):
        chosen.add(policy.choose_blocks(PROMPT, prompt_tokens=2048)[0])
    assert chosen == ({1} if counts else {0, 1})


def test_the_record_of_a_worker_that_left_is_not_its_successor_s():
    policy = fleet()
    policy.choose_blocks([1], [1, 2], prompt_tokens=16)
    policy.end_request(0, "worker_failed", 0)
    policy.remove(A)
    policy.add("http://d:8000")
    for url in (B, "http://d:8000"):
        policy.report_blocks(url, PROMPT, 0)
    assert {policy.choose_blocks(PROMPT, prompt_tokens=2048)[0] for _ in range(30)} == {0, 2}


def test_weights_must_sum_to_one():
    for options in ({"kv_load_weight": 0.5}, {"kv_overlap_weight": 0.0}):
        with pytest.raises(ValueError, match=r"kv_overlap_weight, .* must sum to 1, and sum to"):
            Router("kv_overlap", [A], **options)
    assert Router("kv_overlap", [A], kv_load_weight=0.3000001, kv_overlap_weight=0.6).policy == "kv_overlap"
    assert Router("kv_overlap", [A], kv_overlap_weight=1, kv_load_weight=0, kv_health_weight=0)


def test_its_scores_are_explained():
    router = Router("kv_overlap", [A, B], seed=1)
    ids = list(range(320))
    router.select(token_ids=ids).finish(status=200)
    first, second = router.explain(token_ids=ids).workers
    assert (first.reason, first.score, first.matched, first.limit) == ("kv_aware", pytest.approx(1.0), 20, 1)
    assert second.score == pytest.approx(0.4)
    assert [worker.score for worker in router.explain(token_ids=[7] * 100).workers] == [None, None]
