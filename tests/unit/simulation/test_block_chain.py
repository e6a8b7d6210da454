"""cpp/simulation/block_chain.h."""

from vllm_router import _core_testing as testing

BLOCK = 4


def chain(*tokens: int) -> list[int]:
    return testing.block_chain(list(tokens), BLOCK)


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
