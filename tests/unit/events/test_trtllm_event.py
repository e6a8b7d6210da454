"""cpp/events/trtllm_event.h: what TensorRT-LLM tells, as a batch for each event."""

import json

import pytest
import xxhash

from tests.models import trtllm_event as model
from vllm_router import _core_testing as testing


def tokens(*ids, **more):
    return [{"type": "unique_token", "token_id": number, "token_extra_id": 0} | more for number in ids]


def block(name, *ids, **more):
    return {
        "type": "stored_block",
        "block_hash": name,
        "tokens": tokens(*ids),
        "cache_level": 0,
        "priority": 35,
        "mm_keys": [],
    } | more


def event(number, kind, window=4096, rank=None, **data):
    ranked = {} if rank is None else {"attention_dp_rank": rank}
    return {"event_id": number, "data": {"type": kind, **data}, "window_size": window, **ranked}


def stored(number, *blocks, parent=None, **more):
    return event(number, "stored", parent_hash=parent, blocks=list(blocks), **more)


def read(*events):
    response = json.dumps(events).encode()
    found = testing.read_trtllm_events(response)
    assert found == model.read(response)
    assert found is not None
    return found


def one(written):
    return read(written)[0]


def test_a_new_cache_tells_its_size():
    found = one(event(0, "created", num_blocks_per_cache_level=[1000, 20]))
    assert (found["kind"], found["number"], found["gpu_blocks"], found["events"]) == ("created", 0, 1000, [])


def test_blocks_that_are_stored_follow_their_parent():
    found = one(stored(7, block(91, 1, 2, 3, 4), block(2**64 - 1, 5, 6, 7, 8), parent=5))
    assert (found["number"], found["rank"], found["window"]) == (7, 0, 4096)
    (batch,) = found["events"]
    assert (batch["kind"], batch["medium"], batch["parent"]) == ("stored", "gpu", 5)
    assert batch["hashes"] == [91, 2**64 - 1]
    assert (batch["tokens"], batch["block_size"]) == ([1, 2, 3, 4, 5, 6, 7, 8], 4)


def test_hashes_of_text_and_negative_ones_are_names_too():
    digest = "11" * 32
    (batch,) = one(stored(0, block(digest, 1, 2), parent=-1))["events"]
    assert batch["hashes"] == [xxhash.xxh3_64_intdigest(digest.encode())]
    assert batch["parent"] == 2**64 - 1


def test_a_pictures_tokens_and_keys_are_media():
    key = {"type": "mm_key", "hash": "0123abcd", "start_offset": 7}
    picture = tokens(1) + tokens(2, 2, token_extra_id=9) + tokens(2, token_extra_id=2**64 - 1)
    (batch,) = one(stored(0, block(1, 1, 2, 3, 4), block(2, tokens=picture, mm_keys=[key])))["events"]
    assert batch["extras"] == [(1, "media", b"", 9), (1, "media", b"", -1), (1, "media", b"0123abcd", 7)]


@pytest.mark.parametrize(
    "change",
    [
        {"event_id": None},
        {"event_id": -1},
        {"event_id": 2**63},
        {"event_id": "5"},
        {"attention_dp_rank": 256},
        {"attention_dp_rank": "a"},
    ],
)
def test_an_event_whose_number_or_rank_is_unknown_belongs_to_nobody(change):
    found = one(stored(5, block(1, 1, 2)) | change)
    assert (found["number"], found["dropped"]) == (None, {"malformed_event": 1})
    assert one(17)["number"] is None


@pytest.mark.parametrize(
    "response",
    [b"", b"{}", b"null", b"[", b"[1,]", b"[] []", b'["\xff"]', b"[NaN]", b"<html>", b"[" * 100 + b"]" * 100],
)
def test_what_is_no_array_is_malformed(response):
    assert testing.read_trtllm_events(response) is None
    assert testing.read_trtllm_events(b"[]") == []


def test_a_long_response_leaves_the_next_one_intact():
    long = [stored(i, *[block(64 * i + j, *range(32)) for j in range(64)]) for i in range(20)]
    assert len(json.dumps(long)) > 2**20
    assert [found["full_blocks"] for found in read(*long)] == [64] * 20
    assert one(stored(0, block(1, 1, 2)))["full_blocks"] == 1
