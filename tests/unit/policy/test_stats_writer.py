"""cpp/policy/stats_writer.h, as Router.stats() and the metrics show what is reported."""

import numpy as np

from vllm_router import Router

A, B = "http://a:8000", "http://b:8000"


def test_a_policy_without_blocks_has_no_index():
    router = Router(policy="least_load", worker_urls=[A])
    assert router.stats() == {"policy": "least_load", "tickets_expired": 0}


def test_prompts_and_matches_are_counted_in_blocks():
    router = Router(policy="vllm_cache_aware", worker_urls=[A, B], max_blocks_per_worker=6, seed=1)
    ids = np.arange(65, dtype=np.uint32)
    with router.select(token_ids=ids) as first:
        pass
    with router.select(token_ids=ids) as again:
        assert again.worker_url == first.worker_url
    index = router.stats()["block_index"]
    assert (index["prompt_blocks"], index["matched_blocks"]) == (8, 4)
    assert (index["blocks"], index["worker_blocks"], index["recorded_requests"]) == (4, 4, 2)
    assert index["workers"] == {A: 0, B: 0} | {first.worker_url: 4}
    assert index["bytes"] > 0
    assert index["evicted_blocks"] == 0

    router.remove_worker(B if first.worker_url == A else A)
    with router.select(token_ids=ids[::-1].copy()):
        pass
    index = router.stats()["block_index"]
    assert index["workers"] == {first.worker_url: 6}
    assert index["evicted_blocks"] == 2
