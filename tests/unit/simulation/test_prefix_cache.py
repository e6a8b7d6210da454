"""cpp/simulation/prefix_cache.h; tests/property/test_prefix_cache.py compares it with its slow twin."""

import pytest

from vllm_router._core import testing

BLOCK = 4


def chain(*tokens: int) -> list[int]:
    return testing.block_chain(list(tokens), BLOCK)


def blocks(first: int, count: int) -> list[int]:
    """A chain of `count` blocks that shares nothing with other values of `first`."""
    return testing.block_chain([first] * (count * BLOCK), BLOCK)


def test_only_full_blocks_are_hashed():
    assert [len(testing.block_chain(list(range(n)), BLOCK)) for n in (0, 3, 4, 7, 8, 9)] == [0, 0, 1, 1, 2, 2]


def test_a_hash_names_its_whole_prefix():
    # The second block is the same in both; what comes before it is not.
    assert chain(1, 1, 1, 1, 9, 9, 9, 9)[1] != chain(2, 2, 2, 2, 9, 9, 9, 9)[1]
    assert chain(1, 1, 1, 1, 9, 9, 9, 9)[0] == chain(1, 1, 1, 1)[0]


def test_a_chain_can_be_continued():
    tokens = list(range(100, 124))
    assert testing.append_block_chain(
        tokens[8:], BLOCK, testing.block_chain(tokens[:8], BLOCK)
    ) == testing.block_chain(tokens, BLOCK)


def test_the_chain_is_pinned_by_golden_values():
    assert [f"{h:016x}" for h in testing.block_chain(list(range(8)), BLOCK)] == GOLDEN


GOLDEN = ["9303a1d4d0b935a3", "b137e05b68a83499"]  # from the xxHash library, by a few lines of C


def test_match_counts_leading_resident_blocks_and_changes_nothing():
    cache = testing.PrefixCache(8)
    cache.use(blocks(1, 3))
    assert cache.match(blocks(1, 5)) == 3
    assert cache.match(blocks(1, 2)) == 2
    assert cache.match(blocks(2, 5)) == 0
    assert len(cache) == 3


def test_the_last_block_of_the_least_recent_chain_goes_first():
    cache = testing.PrefixCache(5)
    cache.use(blocks(1, 3))
    cache.use(blocks(2, 2))
    #   2a 2b 1a 1b 1c    full; the next block takes the place of 1c
    cache.use(blocks(3, 1))
    assert [cache.match(blocks(n, 3)) for n in (1, 2, 3)] == [2, 2, 1]
    assert cache.evicted == 1


def test_a_use_makes_the_chain_most_recent():
    cache = testing.PrefixCache(4)
    cache.use(blocks(1, 2))
    cache.use(blocks(2, 2))
    cache.use(blocks(1, 2))
    cache.use(blocks(3, 2))
    assert [cache.match(blocks(n, 2)) for n in (1, 2, 3)] == [2, 0, 2]


def test_a_resident_block_is_not_evicted_by_the_rest_of_its_own_chain():
    cache = testing.PrefixCache(3)
    cache.use(blocks(1, 1))  # becomes the least recent
    cache.use(blocks(2, 2))
    cache.use(blocks(1, 3))
    assert cache.match(blocks(1, 3)) == 3
    assert cache.evicted == 2


def test_of_a_chain_longer_than_the_cache_the_beginning_stays():
    cache = testing.PrefixCache(3)
    cache.use(blocks(1, 10))
    assert cache.match(blocks(1, 10)) == 3
    assert len(cache) == 3


def test_a_cache_of_no_blocks_caches_nothing():
    cache = testing.PrefixCache(0)
    cache.use(blocks(1, 3))
    assert (cache.match(blocks(1, 3)), len(cache), cache.evicted) == (0, 0, 0)


def test_clear_forgets_everything_and_the_cache_goes_on():
    cache = testing.PrefixCache(3)
    cache.use(blocks(1, 3))
    cache.clear()
    assert (cache.match(blocks(1, 3)), len(cache)) == (0, 0)
    cache.use(blocks(2, 3))
    assert cache.match(blocks(2, 3)) == 3


@pytest.mark.parametrize("capacity", [1, 7, 1000])
def test_the_cache_never_holds_more_than_its_capacity(capacity, rng):
    cache = testing.PrefixCache(capacity)
    for _ in range(300):
        cache.use(blocks(rng.randrange(20), rng.randrange(12)))
        assert len(cache) <= capacity
