"""cpp/events/trtllm_event.h: what TensorRT-LLM tells, as a batch for each event."""

import json

import pytest
import xxhash

from tests.models import trtllm_event as model
from tests.rows import for_each_row
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


def moved(number, name, before, now):
    diff = {"type": "event_diff", "new_value": now, "old_value": before}
    return event(number, "updated", block_hash=name, cache_level=diff, priority=None)


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


def test_the_unfilled_end_of_a_prompt_is_left_out_with_what_follows_it():
    found = one(stored(0, block(1, 1, 2, 3), block(2, 4, 5), block(3, 6, 7, 8)))
    assert [batch["hashes"] for batch in found["events"]] == [[1]]
    assert (found["full_blocks"], found["partial_blocks"]) == (1, 2)
    found = one(stored(0, block(1, 1, 2), block(2, 4, 5, 6)))
    assert found["dropped"] == {"malformed_event": 1}


def test_blocks_of_two_tiers_are_two_events_of_one_chain():
    host = {"cache_level": 1}
    found = one(stored(0, block(1, 1, 2), block(2, 3, 4, **host), block(3, 5, 6, **host), block(4, 7, 8)))
    told = [(batch["medium"], batch["parent"], batch["hashes"]) for batch in found["events"]]
    assert told == [("gpu", None, [1]), ("host", 1, [2, 3]), ("gpu", 3, [4])]
    assert one(stored(0, block(1, 1, 2, cache_level=2)))["events"][0]["medium"] == "unknown"


def test_a_block_that_moves_is_stored_before_it_is_removed():
    found = one(moved(3, 91, 0, 1))
    told = [(batch["kind"], batch["medium"], batch["hashes"], batch["tokens"]) for batch in found["events"]]
    assert told == [("stored", "host", [91], []), ("removed", "gpu", [91], [])]
    for same in (moved(3, 91, 1, 1), event(3, "updated", block_hash=91, cache_level=None)):
        found = one(same)
        assert (found["kind"], found["events"], found["dropped"]) == ("updated", [], {})


def test_blocks_are_removed_by_name():
    (batch,) = one(event(4, "removed", block_hashes=[91, 2**63]))["events"]
    assert (batch["kind"], batch["hashes"]) == ("removed", [91, 2**63])


def test_a_pictures_tokens_and_keys_are_media():
    key = {"type": "mm_key", "hash": "0123abcd", "start_offset": 7}
    picture = tokens(1) + tokens(2, 2, token_extra_id=9) + tokens(2, token_extra_id=2**64 - 1)
    (batch,) = one(stored(0, block(1, 1, 2, 3, 4), block(2, tokens=picture, mm_keys=[key])))["events"]
    assert batch["extras"] == [(1, "media", b"", 9), (1, "media", b"", -1), (1, "media", b"0123abcd", 7)]


def test_an_adapter_and_a_salt():
    (batch,) = one(stored(0, block(1, 1, 2, lora_id=7, cache_salt="tenant")))["events"]
    assert (batch["lora_id"], batch["lora_name"], batch["cache_salt"]) == (7, b"", b"tenant")
    named = stored(0, block(1, 1, 2, lora_name=None))
    named["data"]["lora_name"] = "adapter"
    assert one(named)["events"][0]["lora_name"] == b"adapter"


def test_ranks_and_groups_of_layers():
    written = stored(0, block(1, 1, 2), rank=3) | {"layer_group_id": 2, "hash_algo": "v2_sha256"}
    found = one(written)
    assert (found["rank"], found["events"][0]["group"]) == (3, 2)
    assert one(stored(0, block(1, 1, 2), window=None))["window"] == 0
    assert one(stored(0, block(1, 1, 2), window=-2))["window"] == -2


@for_each_row(
    "data",
    [
        {"blocks": []},
        {"blocks": 1},
        {"blocks": [1]},
        {"blocks": [block(1.5, 1)]},
        {"blocks": [block(True, 1)]},
        {"blocks": [block(None, 1)]},
        {"blocks": [block(1)]},
        {"blocks": [block(1, *range(4097))]},
        {"blocks": [block(1, 2**32)]},
        {"blocks": [block(1, -1)]},
        {"blocks": [block(1, tokens=[3, 4])]},
        {"blocks": [block(1, tokens=[{"token_extra_id": 0}])]},
        {"blocks": [block(1, 1, cache_level="gpu")]},
        {"blocks": [block(1, 1, cache_salt=5)]},
        {"blocks": [block(1, 1, cache_salt="s" * 1025)]},
        {"blocks": [block(1, 1, mm_keys=[{"start_offset": 1}])]},
        {"blocks": [block(1, 1)], "parent_hash": []},
        {"type": "removed", "block_hashes": []},
        {"type": "removed", "block_hashes": [None]},
        {"type": "updated"},
        {"type": "updated", "block_hash": 1, "cache_level": 1},
        {"type": "updated", "block_hash": 1, "cache_level": {"old_value": 0, "new_value": "1"}},
        {"type": "created", "num_blocks_per_cache_level": [-1]},
        {"type": 1},
    ],
)
def test_an_event_with_a_wrong_type_is_skipped_and_the_others_are_not(data):
    wrong, right = read(event(5, "stored") | {"data": {"type": "stored"} | data}, stored(6, block(1, 1, 2)))
    assert (wrong["number"], wrong["kind"], wrong["events"]) == (5, "none", [])
    assert wrong["dropped"] == {"malformed_event": 1}
    assert right["events"][0]["hashes"] == [1]


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


def test_an_unknown_event_has_a_number():
    found = one(event(5, "pinned", block_hash=1))
    assert (found["number"], found["dropped"]) == (5, {"unknown_tag": 1})


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
