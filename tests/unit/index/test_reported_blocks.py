"""cpp/index/reported_blocks.h: whose a cache is, and what trust makes of what it holds."""

import pytest

from vllm_router import _core_testing as testing

TRUST_NAMES = ["off", "waiting", "exact", "settled", "partial", "silent", "mismatch"]
TRUST = {name: i for i, name in enumerate(TRUST_NAMES)}
CHAIN = [11, 12, 13, 14, 15]


def reported(*workers: tuple[int, int]):
    blocks = testing.ReportedBlocks()
    blocks.set_workers(list(workers))
    return blocks


def test_a_worker_that_is_not_there_has_no_cache():
    blocks = reported((7, 3))
    assert blocks.add_cache(8) is None
    assert blocks.add_cache(7) is not None


def test_it_changes_matches_while_a_worker_has_a_source():
    blocks = reported((7, 3), (8, 4))
    assert not blocks.active
    for worker in (7, 8, 7):
        blocks.set_trust(worker, TRUST["waiting"])
    blocks.set_trust(7, TRUST["off"])
    assert blocks.active
    blocks.set_workers([(7, 3)])
    assert not blocks.active


@pytest.mark.parametrize("trust", TRUST)
def test_trust_decides_between_events_and_what_was_learned(trust):
    blocks = reported((7, 3))
    blocks.insert(blocks.add_cache(7), 0, CHAIN[:3])
    blocks.set_trust(7, TRUST[trust])
    assert blocks.trust(3) == trust
    complete = trust in ("exact", "settled")
    usable = complete or trust == "partial"
    learned = (5, 5, 5)
    want = (3, 3, 3) if complete else learned
    assert blocks.merge(CHAIN, [(3, learned)]) == {3: want}
    assert blocks.merge(CHAIN) == ({3: (3, 3, 3)} if usable else {})


def test_a_worker_without_events_keeps_what_was_learned():
    blocks = reported((7, 3), (8, 4))
    blocks.insert(blocks.add_cache(7), 0, CHAIN[:2])
    blocks.set_trust(7, TRUST["exact"])
    assert blocks.merge(CHAIN, [(4, (4, 4, 4))]) == {3: (2, 2, 2), 4: (4, 4, 4)}


def test_the_best_rank_counts_tier_by_tier():
    blocks = reported((7, 3))
    blocks.set_trust(7, TRUST["exact"])
    blocks.insert(blocks.add_cache(7), 0, CHAIN[:2])
    blocks.insert(blocks.add_cache(7), 1, CHAIN[:4])
    assert blocks.merge(CHAIN) == {3: (2, 4, 4)}
    assert blocks.counts(7) == [2, 4, 0]


def test_a_worker_that_left_takes_nothing_along_to_the_next_at_its_slot():
    blocks = reported((7, 3))
    cache = blocks.add_cache(7)
    blocks.insert(cache, 0, CHAIN)
    blocks.set_trust(7, TRUST["exact"])
    assert blocks.has_cache(7, cache)
    blocks.set_workers([(9, 3)])
    assert not blocks.has_cache(7, cache)
    assert (blocks.trust(3), blocks.active) == ("off", False)
    blocks.set_trust(7, TRUST["exact"])
    assert blocks.trust(3) == "off"
    blocks.set_trust(9, TRUST["exact"])
    assert blocks.merge(CHAIN) == {}
    assert blocks.counts(7) == blocks.counts(9) == [0, 0, 0]
    blocks.sweep()
    assert (blocks.pairs(), blocks.check()) == (0, "")
    assert blocks.has_cache(9, blocks.add_cache(9))


def test_the_workers_that_stay_keep_their_caches():
    blocks = reported((7, 3), (8, 4))
    blocks.insert(blocks.add_cache(7), 0, CHAIN)
    blocks.set_trust(7, TRUST["exact"])
    blocks.set_workers([(7, 3), (9, 4)])
    assert blocks.merge(CHAIN) == {3: (5, 5, 5)}


def test_a_removed_cache_is_matched_no_more_and_may_be_removed_twice():
    blocks = reported((7, 3))
    cache = blocks.add_cache(7)
    blocks.insert(cache, 0, CHAIN)
    blocks.set_trust(7, TRUST["exact"])
    blocks.remove_cache(cache)
    blocks.remove_cache(cache)
    assert blocks.merge(CHAIN) == {}


def test_capacities_are_by_rank():
    blocks = reported((7, 3), (8, 4))
    assert blocks.gpu_blocks(7) == blocks.gpu_blocks(7, 0) == 0
    blocks.set_gpu_blocks(7, [(0, 100), (1, 300)])
    assert [blocks.gpu_blocks(7, rank) for rank in (0, 1, 2, None)] == [100, 300, 0, 400]
    blocks.set_gpu_blocks(8, [(None, 50)])
    assert [blocks.gpu_blocks(8, rank) for rank in (0, 9, None)] == [50, 50, 50]
    blocks.set_workers([(8, 4), (9, 3)])
    blocks.set_gpu_blocks(7, [(0, 100)])
    assert [blocks.gpu_blocks(worker) for worker in (7, 8, 9)] == [0, 50, 0]
