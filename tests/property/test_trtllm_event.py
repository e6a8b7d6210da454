"""Responses of any mixture of events read as the slow twin reads them; changed bytes harm nothing."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models import trtllm_event as model
from vllm_router import _core_testing as testing

HASH = st.one_of(st.integers(-(2**63), 2**64 - 1), st.text(max_size=8))
NAME = st.one_of(st.none(), st.text(max_size=5))
EXTRA = st.one_of(st.none(), st.just(0), st.integers(0, 2**64 - 1))
TOKEN = st.fixed_dictionaries({"token_id": st.integers(0, 2**32 - 1)}, optional={"token_extra_id": EXTRA})
ANY = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 2**33), st.floats(allow_nan=False, allow_infinity=False)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
LEVEL = st.sampled_from([0, 0, 1, 2])
KEY = st.fixed_dictionaries({"hash": st.text(max_size=5)}, optional={"start_offset": st.integers(-9, 9)})
BLOCK = {
    "block_hash": HASH,
    "tokens": st.lists(TOKEN, min_size=2, max_size=2),
    "cache_level": LEVEL,
    "priority": st.integers(0, 100),
    "lora_id": st.one_of(st.none(), st.integers(-9, 9)),
    "lora_name": NAME,
    "cache_salt": NAME,
    "mm_keys": st.one_of(st.none(), st.lists(KEY, max_size=2)),
}
DATA = {
    "parent_hash": st.one_of(st.none(), HASH),
    "block_hashes": st.lists(HASH, max_size=4),
    "block_hash": HASH,
    "cache_level": st.one_of(st.none(), st.fixed_dictionaries({"old_value": LEVEL, "new_value": LEVEL})),
    "num_blocks_per_cache_level": st.lists(st.integers(0, 2**40), max_size=2),
    "lora_name": NAME,
}
KIND = st.sampled_from(["stored", "stored", "stored", "removed", "updated", "created", "other"])


@st.composite
def some(draw, fields, always=()) -> dict:
    """Most of the fields, seldom with a wrong value."""
    wrong = draw(st.integers(0, 7)) == 0
    return {
        name: draw(ANY if wrong and draw(st.booleans()) else right)
        for name, right in fields.items()
        if name in always or draw(st.booleans())
    }


@st.composite
def events(draw) -> dict:
    data = draw(some(DATA, ("block_hashes", "block_hash")))
    data["type"] = draw(KIND)
    blocks = draw(st.lists(some(BLOCK, ("block_hash", "tokens")), max_size=4))
    if blocks and draw(st.booleans()):
        blocks[-1]["tokens"] = draw(st.lists(TOKEN, max_size=3))
    data["blocks"] = blocks
    head = {
        "event_id": st.integers(0, 2**63 - 1),
        "attention_dp_rank": st.one_of(st.none(), st.integers(0, 255)),
        "window_size": st.one_of(st.none(), st.integers(-3, 2**40)),
        "layer_group_id": st.one_of(st.none(), st.integers(0, 65_535)),
        "data": st.just(data),
    }
    return dict(draw(st.permutations(list(draw(some(head, ("event_id", "data"))).items()))))


@st.composite
def responses(draw) -> bytes:
    listed = draw(st.lists(st.one_of(events(), events(), events(), ANY), max_size=5))
    return json.dumps(listed, ensure_ascii=draw(st.booleans())).encode(errors="replace")


@given(responses())
def test_a_response_reads_as_the_slow_twin_reads_it(response):
    assert testing.read_trtllm_events(response) == model.read(response)


@given(responses(), st.data())
def test_changed_bytes_read_as_the_slow_twin_reads_them(response, data):
    changed = bytearray(response)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    # The json module takes a lone surrogate for text, and a sign or a zero before some numbers.
    found = testing.read_trtllm_events(bytes(changed))
    assert found is None or found == model.read(bytes(changed))
