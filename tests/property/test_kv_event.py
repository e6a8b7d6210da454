"""Batches of any mixture of forms decode as the slow twin reads them; changed bytes harm nothing."""

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from tests.models import kv_event as model
from vllm_router import _core_testing as testing

HASH = st.one_of(st.integers(-(2**63), 2**64 - 1), st.binary(max_size=40), st.text(max_size=8))
NAME = st.one_of(
    st.none(), st.sampled_from(["GPU", "cpu", "FS", "full_attention", "LOCAL"]), st.text(max_size=6)
)
TOKENS = st.lists(
    st.one_of(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 300), min_size=1, max_size=3)), max_size=6
)
EXTRA = st.one_of(
    st.text(max_size=5), st.binary(max_size=5), st.tuples(st.text(max_size=5), st.integers(-9, 9))
)
RIGHT = {
    "block_hashes": st.lists(HASH, max_size=4),
    "parent_block_hash": st.one_of(st.none(), HASH),
    "token_ids": st.one_of(st.none(), TOKENS),
    "block_size": st.integers(0, 4096),
    "lora_id": st.one_of(st.none(), st.integers(-(2**63), 2**64 - 1)),
    "medium": NAME,
    "lora_name": st.one_of(NAME, st.dictionaries(st.sampled_from(["cache_salt", "x"]), NAME)),
    "extra_keys": st.one_of(
        st.none(), st.lists(st.one_of(st.none(), st.lists(EXTRA, max_size=3)), max_size=3)
    ),
    "group_idx": st.integers(0, 65_535),
    "kv_cache_spec_kind": NAME,
    "locality": NAME,
    "cache_salt": NAME,
    "session_id": NAME,
}
ANY = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 2**33), st.floats(allow_nan=False), st.text(max_size=3)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
TAG = st.sampled_from(["BlockStored", "BlockStored", "BlockRemoved", "AllBlocksCleared", "Other"])


@st.composite
def events(draw) -> object:
    wrong = draw(st.booleans()) and draw(st.booleans())
    fields = {
        name: draw(ANY if wrong and draw(st.booleans()) else right)
        for name, right in RIGHT.items()
        if draw(st.booleans()) or name == "block_hashes"
    }
    tag = draw(TAG)
    if draw(st.booleans()):
        items = draw(st.permutations([("type", tag), *fields.items()]))
        return dict(items)
    order = model.REMOVED if tag == "BlockRemoved" else model.STORED
    values = [fields.get(name) for name in order]
    return [tag, *values[: draw(st.integers(0, len(values)))]]


@st.composite
def payloads(draw) -> bytes:
    seconds = draw(st.one_of(st.floats(0, 1e13), st.integers(0, 10**13)))
    rank = draw(st.one_of(st.none(), st.integers(0, 9)))
    listed = draw(st.lists(st.one_of(events(), events(), ANY), max_size=5))
    if draw(st.booleans()):
        return msgpack.packb({"ts": seconds, "events": listed, "data_parallel_rank": rank})
    return msgpack.packb([seconds, listed, rank][: draw(st.integers(2, 3))])


@given(payloads())
def test_a_batch_decodes_as_the_slow_twin_reads_it(payload):
    assert testing.decode_kv_batch(payload) == model.decode(payload)


@given(payloads(), st.data())
def test_changed_bytes_give_a_batch_or_none(payload, data):
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    decoded = testing.decode_kv_batch(bytes(changed))
    assert decoded is None or testing.read_batch_rank(bytes(changed)) == decoded["rank"]
    testing.msgpack_skip(bytes(changed))
