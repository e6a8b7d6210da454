"""cpp/index/block_cache_tracker.h, through BlockCacheTracker; histories are in tests/property."""

import threading

import numpy as np
import pytest

from tests.rows import for_each_row
from vllm_router import BlockCacheTracker, BlockMatch, WorkerNotFoundError

TOKENS = np.arange(160, dtype=np.uint32)


def test_what_was_recorded_is_found():
    tracker = BlockCacheTracker(block_size=16)
    assert tracker.find_best_worker(TOKENS) is None
    tracker.record_request(TOKENS[:100], "http://w1:8000")
    tracker.record_request(TOKENS[:50], "http://w2:8000")
    assert tracker.find_best_worker(TOKENS) == BlockMatch("http://w1:8000", 6, 10)
    assert tracker.find_best_worker(TOKENS, workers=["http://w2:8000"]) == ("http://w2:8000", 3, 10)
    assert tracker.find_best_worker(TOKENS, workers=["http://w9:8000"]) is None
    assert tracker.find_best_worker(TOKENS, workers=[]) is None
    assert tracker.match(TOKENS) == {"http://w1:8000": 6, "http://w2:8000": 3}
    assert tracker.block_count("http://w1:8000") == 6


def test_a_match_has_names_for_its_parts():
    tracker = BlockCacheTracker(1)
    tracker.record_request([1, 2], "w")
    best = tracker.find_best_worker([1, 2, 3])
    assert (best.worker, best.matched_blocks, best.total_blocks) == ("w", 2, 3)
    assert repr(best) == "BlockMatch(worker='w', matched_blocks=2, total_blocks=3)"


def test_the_drawing_of_the_header():
    #   a b c d, then a b x: x and, again, b a are the newest; capacity 4: d has to go
    tracker = BlockCacheTracker(1, 4)
    tracker.record_request([1, 2, 3, 4], "w1")
    tracker.record_request([1, 2, 9], "w1")
    assert tracker.match([1, 2, 3, 4]) == {"w1": 3}
    assert tracker.match([1, 2, 9]) == {"w1": 3}
    assert tracker.find_best_worker([1, 2, 3, 7]) == ("w1", 3, 4)


def test_a_removed_worker_is_gone_and_its_place_is_used_again_under_the_same_capacity(rng):
    tracker = BlockCacheTracker(1, 40)
    for round_ in range(30):
        for worker in ("a", "b", "c"):
            for _ in range(10):
                tracker.record_request([rng.randrange(4) for _ in range(15)], worker)
        assert all(tracker.block_count(worker) <= 40 for worker in "abc")
        tracker.remove_worker("abc"[round_ % 3])
        assert "abc"[round_ % 3] not in tracker.workers
        tracker.sweep(rng.randrange(20))
    assert len(tracker.workers) <= 33


def test_workers_keep_their_index():
    tracker = BlockCacheTracker(1)
    for worker in ("a", "b", "c"):
        tracker.add_worker(worker)
    tracker.remove_worker("b")
    assert tracker.workers == ["a", None, "c"]
    tracker.add_worker("a")
    assert tracker.workers == ["a", None, "c"]


def test_batches_answer_like_single_calls(rng):
    tracker, single = BlockCacheTracker(4, 300), BlockCacheTracker(4, 300)
    prompts = [[rng.randrange(2) for _ in range(rng.randrange(0, 60))] for _ in range(200)]
    names = [f"w{rng.randrange(5)}" for _ in prompts]
    offsets = np.cumsum([0, *map(len, prompts)])
    tokens = np.array([token for prompt in prompts for token in prompt], dtype=np.uint32)
    tracker.record_batch(tokens, offsets, names)
    for prompt, name in zip(prompts, names, strict=True):
        single.record_request(prompt, name)
    assert tracker.workers == single.workers
    best, matched, total = tracker.find_best_batch(tokens, offsets)
    depths = tracker.match_batch(tokens, offsets)
    assert (best.dtype, matched.dtype, total.dtype) == (np.int32, np.int64, np.int64)
    assert (depths.shape, depths.dtype) == ((200, 5), np.int32)
    for i, prompt in enumerate(prompts):
        alone = single.find_best_worker(prompt)
        expected = (alone.worker, alone.matched_blocks) if alone else (None, 0)
        assert (tracker.workers[best[i]] if best[i] >= 0 else None, matched[i]) == expected
        assert total[i] == len(prompt) // 4
        assert {w: d for w, d in zip(tracker.workers, depths[i].tolist(), strict=True) if d} == single.match(
            prompt
        )
    some = ["w1", "w3"]
    assert all(
        tracker.workers[index] in some
        for index in tracker.find_best_batch(tokens, offsets, workers=some)[0]
        if index >= 0
    )
    tracker.record_batch(tokens, offsets, "all")
    assert tracker.block_count("all") > 0


def test_texts_are_tracked_in_blocks_of_bytes():
    tracker = BlockCacheTracker(block_size=4)
    tracker.record_request("You are a helpful assistant. Hello!", "w")
    assert tracker.find_best_worker("You are a helpful assistant. Goodbye!") == ("w", 1, 2)
    assert tracker.find_best_worker(b"You are a helpful assistant. Hello!") == ("w", 2, 2)


def test_a_prompt_of_a_hundred_thousand_tokens():
    tracker = BlockCacheTracker()
    tokens = np.arange(100_000, dtype=np.uint32)
    tracker.record_request(tokens, "w")
    assert tracker.find_best_worker(tokens) == ("w", 6250, 6250)
    other = tokens.copy()
    other[50_000] = 7
    assert tracker.find_best_worker(other) == ("w", 3125, 6250)


def test_token_ids_reach_to_the_end_of_32_bits():
    tracker = BlockCacheTracker(2)
    tracker.record_request(np.array([2**32 - 1, 0], dtype=np.uint32), "w")
    assert tracker.find_best_worker([2**32 - 1, 0]) == ("w", 1, 1)


def test_threads_may_record_and_ask_at_once():
    tracker = BlockCacheTracker(1, 500)
    prompts = [np.arange(k, k + 40, dtype=np.uint32) for k in range(50)]

    def work(name):
        for prompt in prompts * 4:
            tracker.record_request(prompt, name)
            best = tracker.find_best_worker(prompt)
            assert best.matched_blocks == 40

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.stats()["recorded_requests"] == 800


@for_each_row(
    ("call", "error", "says"),
    [
        (lambda _: BlockCacheTracker(0), ValueError, "block_size is 0"),
        (lambda _: BlockCacheTracker("16"), TypeError, "block_size is of type str"),
        (lambda _: BlockCacheTracker(16, -1), ValueError, "max_blocks_per_worker is -1"),
        (lambda _: BlockCacheTracker(16, 1.5), TypeError, "max_blocks_per_worker is of type float"),
        (lambda t: t.record_request(TOKENS.astype(np.int32), "w"), TypeError, "dtype int32"),
        (lambda t: t.record_request(TOKENS.reshape(2, 80), "w"), ValueError, "2 dimensions"),
        (lambda t: t.record_request([2**32], "w"), ValueError, "between 0 and 4294967295"),
        (lambda t: t.record_request(TOKENS, 5), TypeError, "worker is of type int"),
        (lambda t: t.find_best_worker(5), TypeError, "token_ids is of type int"),
        (lambda t: t.find_best_worker(TOKENS, workers="w"), TypeError, "workers is 'w'"),
        (lambda t: t.record_batch(TOKENS, np.array([0, 50, 20]), "w"), ValueError, r"offsets\[2\] is 20"),
        (lambda t: t.record_batch(TOKENS, np.array([0, 161]), "w"), ValueError, "has only 160 ids"),
        (lambda t: t.record_batch(TOKENS, np.array([0, 9, 9]), ["w"]), ValueError, "workers has 1 names"),
        (lambda t: t.record_batch(TOKENS, np.array([0, 9]), [7]), TypeError, "worker is of type int"),
        (lambda t: t.find_best_batch(TOKENS, [0, 9]), TypeError, "offsets is of type list"),
        (lambda t: t.evict_worker("nobody", 1), WorkerNotFoundError, "worker 'nobody' is not known"),
        (lambda t: t.evict_worker("known", -5), ValueError, "max_blocks is -5"),
        (lambda t: t.remove_worker("nobody"), WorkerNotFoundError, "worker 'nobody' is not known"),
        (lambda t: t.block_count("nobody"), WorkerNotFoundError, "worker 'nobody' is not known"),
        (lambda t: t.set_capacity(-1), ValueError, "max_blocks_per_worker is -1"),
    ],
)
def test_bad_input_is_refused_in_a_sentence_and_changes_nothing(call, error, says):
    tracker = BlockCacheTracker()
    tracker.record_request(TOKENS, "known")
    before = tracker.stats()
    with pytest.raises(error, match=says):
        call(tracker)
    assert (tracker.stats(), tracker.workers) == (before, ["known"])


def test_more_than_4096_workers_are_refused_until_one_goes():
    tracker = BlockCacheTracker(1)
    for i in range(4096):
        tracker.record_request([i], f"w{i}")
    with pytest.raises(Exception, match="all 4096 places"):
        tracker.record_request([1], "one more")
    tracker.remove_worker("w7")
    tracker.record_request([1], "one more")
    assert tracker.match([1]) == {"w1": 1, "one more": 1}
    assert tracker.match([7]) == {}
