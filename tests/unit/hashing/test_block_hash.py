"""cpp/hashing/block_hash.h, through `hash_blocks`, against golden values and its slow twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import block_hash as slow
from tests.models.hashing import xxh3
from tests.rows import for_each_row
from vllm_router import hash_blocks

TOKENS = np.arange(32, dtype=np.uint32)


def hexes(hashes):
    return [f"{int(h):016x}" for h in hashes]


@pytest.mark.parametrize(
    ("seed", "chain"),
    [
        (0, ["44d1313ef2b5f8a1", "dddcd45c3ae29911"]),
        (1337, ["611288d5bb3cc24a", "17dc6624182ec08c"]),
    ],
)
def test_the_chain_is_pinned_by_golden_values(seed, chain):
    assert hexes(hash_blocks(TOKENS, 16, seed=seed)) == chain
    assert hexes(slow.chained(range(32), 16, seed=seed)) == chain


@pytest.mark.parametrize(
    ("seed", "block", "local"),
    [
        (0, range(16), "79c2079c74a8ee4d"),
        (0, range(16, 32), "0de75b0e004b90fe"),
        (1337, range(16), "d47a8f41c833328a"),
        (1337, range(16, 32), "d43939178abd00db"),
        (1337, range(1, 5), f"{14643705804678351452:016x}"),  # what other routers send as tokens_hash
    ],
)
def test_the_hash_of_one_block_is_pinned_by_golden_values(seed, block, local):
    data = b"".join(token.to_bytes(4, "little") for token in block)
    assert f"{slow.local_hash(data, seed):016x}" == local


def test_the_positional_scheme_is_pinned_by_golden_values():
    assert hexes(hash_blocks(TOKENS, scheme="positional")) == ["24becc5361303c06", "950c21f1bde04b52"]


def test_the_root_of_adapter_and_salt_is_pinned_by_a_golden_value():
    assert f"{slow.root(0, b'my-lora', b'salt-1'):016x}" == "5b892b7c69bf716c"
    chain = hash_blocks(TOKENS, lora_name="my-lora", cache_salt="salt-1")
    assert chain.tolist() == slow.chained(range(32), 16, lora_name=b"my-lora", cache_salt=b"salt-1")


EXTRAS = st.dictionaries(st.integers(0, 6), st.binary(max_size=20), max_size=3)


@given(
    tokens=st.lists(st.integers(0, 2**32 - 1), max_size=70),
    block_size=st.sampled_from([1, 2, 3, 7, 16, 20]),
    seed=st.sampled_from([0, 1, 1337, 2**64 - 1]),
    lora_name=st.binary(max_size=9),
    cache_salt=st.binary(max_size=9),
    extra=EXTRAS,
)
def test_chains_of_tokens_agree_with_the_slow_twin(tokens, block_size, seed, lora_name, cache_salt, extra):
    options = {"seed": seed, "lora_name": lora_name, "cache_salt": cache_salt, "extra": extra}
    expected = slow.chained(tokens, block_size, **options)
    assert hash_blocks(np.array(tokens, dtype=np.uint32), block_size, **options).tolist() == expected
    assert hash_blocks(tokens, block_size, **options).tolist() == expected
    positional = hash_blocks(tokens, block_size, scheme="positional")
    assert positional.tolist() == slow.positional(tokens, block_size)


@given(text=st.binary(max_size=300), block_size=st.sampled_from([1, 2, 16]), extra=EXTRAS)
def test_chains_of_text_agree_with_the_slow_twin(text, block_size, extra):
    assert hash_blocks(text, block_size, extra=extra).tolist() == slow.chained(text, block_size, extra=extra)
    assert hash_blocks(text, block_size, scheme="positional").tolist() == slow.positional(text, block_size)


def test_a_str_is_hashed_as_its_utf8_and_never_like_token_ids():
    text = "Grüße aus Köln, " * 9
    assert hash_blocks(text, 4).tolist() == slow.chained(text.encode(), 4)
    tokens = np.frombuffer(("x" * 64).encode(), dtype=np.uint32)
    assert hash_blocks("x" * 64)[0] != hash_blocks(tokens)[0]


@pytest.mark.parametrize("block_size", [64, 128, 4096])
def test_blocks_beyond_the_short_forms_of_xxh3_agree_with_the_slow_twin(block_size):
    tokens = list(range(2 * block_size + 3))
    for seed in (0, 1337):
        assert hash_blocks(tokens, block_size, seed=seed).tolist() == slow.chained(
            tokens, block_size, seed=seed
        )


def test_a_hash_names_everything_before_its_block():
    other = TOKENS.copy()
    other[0] = 99
    assert (hash_blocks(TOKENS) != hash_blocks(other)).all()
    assert (hash_blocks(TOKENS, scheme="positional") == hash_blocks(other, scheme="positional")).tolist() == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    "options",
    [{"lora_name": "a"}, {"cache_salt": "a"}, {"seed": 1}, {"extra": {0: b"image-1"}}, {"lora_name": "b"}],
)
def test_what_makes_equal_tokens_unequal_changes_every_hash(options):
    assert (hash_blocks(TOKENS, **options) != hash_blocks(TOKENS)).all()


def test_extra_bytes_change_their_block_and_those_behind_it():
    changed = hash_blocks(TOKENS, 8, extra={2: b"image"}) != hash_blocks(TOKENS, 8)
    assert changed.tolist() == [False, False, True, True]


def test_an_empty_name_is_an_absent_one():
    chain = hash_blocks(TOKENS, lora_name="", cache_salt=None, extra={})
    assert (chain == hash_blocks(TOKENS)).all()


def test_adapter_and_salt_are_not_confused():
    chains = [
        hash_blocks(TOKENS, lora_name="ab"),
        hash_blocks(TOKENS, cache_salt="ab"),
        hash_blocks(TOKENS, lora_name="a", cache_salt="b"),
        hash_blocks(TOKENS, lora_name="a", cache_salt="bS"),
    ]
    assert len({int(chain[0]) for chain in chains}) == 4


@pytest.mark.parametrize("tokens", [0, 1, 15])
def test_a_prompt_shorter_than_a_block_has_no_blocks(tokens):
    hashes = hash_blocks(np.zeros(tokens, dtype=np.uint32))
    assert (hashes.shape, hashes.dtype) == ((0,), np.uint64)


def test_many_prompts_in_one_call_are_hashed_like_each_alone(rng):
    lengths = [rng.randrange(0, 90) for _ in range(50)]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = np.array([rng.randrange(2**32) for _ in range(offsets[-1])], dtype=np.uint32)
    for options in ({}, {"scheme": "positional"}, {"lora_name": "a", "seed": 5}):
        hashes, bounds = hash_blocks(tokens, 8, offsets=offsets, **options)
        assert bounds.tolist() == [0, *np.cumsum([length // 8 for length in lengths])]
        for i in range(50):
            alone = hash_blocks(tokens[offsets[i] : offsets[i + 1]], 8, **options)
            assert (hashes[bounds[i] : bounds[i + 1]] == alone).all()


def test_a_large_prompt_is_hashed_without_the_gil_and_alike():
    tokens = np.arange(200_000, dtype=np.uint32)
    whole = hash_blocks(tokens)
    assert (hash_blocks(tokens[:1600]) == whole[:100]).all()
    assert len(set(whole.tolist())) == 12_500


@for_each_row(
    ("arguments", "options", "error", "says"),
    [
        ((TOKENS, 0), {}, ValueError, "block_size is 0; it must be 1 to 65536"),
        ((TOKENS, -1), {}, ValueError, "block_size is -1"),
        ((TOKENS, 2**70), {}, ValueError, "block_size is 11805"),
        ((TOKENS, 1.5), {}, TypeError, "block_size is of type float"),
        ((TOKENS.astype(np.int64),), {}, TypeError, "token_ids has dtype int64; it must be uint32"),
        ((TOKENS.reshape(2, 16),), {}, ValueError, "token_ids has 2 dimensions"),
        ((TOKENS[::2],), {}, ValueError, "token_ids is not contiguous"),
        (([1, -1],), {}, ValueError, r"token_ids\[1\] is -1"),
        (([2**32],), {}, ValueError, "between 0 and 4294967295"),
        ((None,), {}, TypeError, "token_ids is of type NoneType"),
        ((TOKENS,), {"scheme": "other"}, ValueError, "scheme is 'other'"),
        ((TOKENS,), {"scheme": "positional", "seed": 1}, ValueError, "need scheme='chained'"),
        ((TOKENS,), {"scheme": "positional", "lora_name": "a"}, ValueError, "need scheme='chained'"),
        ((TOKENS,), {"lora_name": 5}, TypeError, "lora_name is of type int"),
        ((TOKENS,), {"extra": [b"a"]}, TypeError, "extra is of type list"),
        ((TOKENS,), {"extra": {-1: b"a"}}, TypeError, "numbers of blocks"),
        ((TOKENS,), {"extra": {0: 1}}, TypeError, "numbers of blocks"),
        ((TOKENS,), {"offsets": [0, 32]}, TypeError, "offsets is of type list"),
        ((TOKENS,), {"offsets": np.array([0, 20, 10])}, ValueError, r"offsets\[2\] is 10"),
        ((TOKENS,), {"offsets": np.array([-1, 20])}, ValueError, r"offsets\[0\] is -1"),
        ((TOKENS,), {"offsets": np.array([0, 33])}, ValueError, "token_ids has only 32 ids"),
        ((TOKENS,), {"offsets": np.array([], dtype=np.int64)}, ValueError, "offsets is empty"),
        ((TOKENS,), {"offsets": np.array([0, 32]), "extra": {0: b"a"}}, ValueError, "one by one"),
        (("text",), {"offsets": np.array([0, 4])}, TypeError, "token_ids is of type str"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(arguments, options, error, says):
    with pytest.raises(error, match=says):
        hash_blocks(*arguments, **options)


@for_each_row("seed", [0, 1337, 2**64 - 1])
@for_each_row("size", [0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240])
def test_the_twins_xxh3_has_the_seeds_of_the_real_one(size, seed):
    # One block of extra bytes reaches every length above 4: L = XXH3(4 bytes of token, then the extra bytes).
    extra = bytes(range(size))
    expected = slow.chained([7], 1, seed=seed, extra={0: extra})
    assert hash_blocks([7], 1, seed=seed, extra={0: extra}).tolist() == expected
    assert xxh3(extra, seed) != xxh3(extra, seed ^ 1)
