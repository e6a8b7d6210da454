"""cpp/simulation/prefix_cache.h against its slow twin."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.prefix_cache import PrefixCache as SlowCache
from vllm_router._core import testing

# Few token values, so that prompts share prefixes of every length.
PROMPTS = st.lists(st.lists(st.integers(0, 1), max_size=14), max_size=40)


@given(PROMPTS, st.integers(0, 9), st.integers(1, 3))
def test_hits_size_and_evictions_agree_with_the_slow_twin(prompts, capacity, block_tokens):
    cache, slow = testing.PrefixCache(capacity), SlowCache(capacity, block_tokens)
    for tokens in prompts:
        chain = testing.block_chain(tokens, block_tokens)
        assert cache.match(chain) == slow.match(tokens)
        cache.use(chain)
        slow.use(tokens)
        assert (len(cache), cache.evicted) == (len(slow.prefixes), slow.evicted)


@given(PROMPTS, st.integers(0, 9))
def test_what_is_resident_is_always_whole_prefixes(prompts, capacity):
    cache = testing.PrefixCache(capacity)
    for tokens in prompts:
        cache.use(testing.block_chain(tokens, 1))
    for tokens in prompts:
        chain = testing.block_chain(tokens, 1)
        matched = cache.match(chain)
        # Nothing behind the first miss is resident.
        assert all(cache.match([block]) == 0 for block in chain[matched:])
