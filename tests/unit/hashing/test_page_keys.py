"""cpp/hashing/page_keys.h: the names of pages in a shared pool."""

from vllm_router import _core_testing as testing

# As SGLang computes them.
FIRST = "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72"
SECOND = "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6"


def keys(ids, tokens, pairs=False):
    return [key.hex() for key in testing.page_keys(ids, tokens, pairs)]


def test_the_known_vectors():
    assert keys([1, 2, 3, 4, 5, 6, 7, 8], 4) == [FIRST, SECOND]


def test_a_page_that_is_not_full_has_no_key():
    assert keys([1, 2, 3, 4, 5, 6, 7], 4) == [FIRST]
    assert keys([1, 2, 3], 4) == []
    assert keys([], 4) == []
    assert keys([1, 2], 0) == []


def test_pages_of_pairs_need_one_id_more():
    assert keys([1, 2, 3, 4], 4, pairs=True) == []
    assert len(keys([1, 2, 3, 4, 5], 4, pairs=True)) == 1
    assert keys([1, 2, 3], 2, pairs=True) == keys([1, 2, 2, 3], 4)
