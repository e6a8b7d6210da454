"""cpp/events/event_applier.h: one batch and one rule at a time, recorded frames, and hostile streams."""

import base64
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from tests.models.kv_picture import Picture, depths
from vllm_router import _core_testing as testing

DATA = Path(__file__).parents[2] / "data" / "kv_events"
FRAMES = [json.loads(line) for line in (DATA / "vllm_0.32.jsonl").read_text().splitlines()]


def stored(hashes, tokens, parent=None, **fields):
    event = {"type": "BlockStored", "block_hashes": hashes, "token_ids": tokens, "block_size": 2}
    return event | {"parent_block_hash": parent} | fields


def removed(*hashes, **fields):
    return {"type": "BlockRemoved", "block_hashes": list(hashes)} | fields


CLEARED = {"type": "AllBlocksCleared"}
TOKENS = [1, 2, 3, 4, 5, 6]


class Source:
    """One source of worker 1, whose router blocks have `size` tokens."""

    def __init__(self, size=2, **options):
        self.blocks = testing.ReportedBlocks(size)
        self.blocks.set_workers([(1, 0)])
        self.applier = testing.EventApplier(self.blocks, 1, **options)

    def apply(self, *events, now=0):
        result = self.applier.apply(msgpack.packb([1.0, list(events)]), now)
        assert result is not None
        assert self.blocks.check() == ""
        return result

    def depths(self, tokens=TOKENS, adapter="m", salt=""):
        found = self.blocks.match(self.blocks.chain(tokens, adapter, salt))
        return found.get(self.applier.cache, (0, 0, 0))

    def __getattr__(self, name):
        return self.applier.figures()[name]


@pytest.mark.parametrize("size", [1, 2])
def test_a_block_of_the_engine_is_one_of_the_router_or_several(size):
    source = Source(size)
    source.apply(stored([7, 8], TOKENS[:4]), stored([9], TOKENS[4:], 8))
    assert source.depths() == (6 // size,) * 3
    source.apply(removed(9))
    assert source.depths() == (4 // size,) * 3
    assert (source.known, source.block_size) == (2, 2)


def test_a_source_with_one_tier_keeps_nothing_of_removed_blocks():
    source, tiered = Source(), Source()
    tiered.apply(removed(0, medium="CPU"))
    for each in (source, tiered):
        each.apply(stored([7, 8, 9], TOKENS), removed(7, 8, 9))
    assert source.bytes < tiered.bytes
    source.apply(stored([7], [], medium="CPU"))
    assert source.dropped == {"unknown_placeholder": 1}


def test_a_long_chain_of_orphans_attaches_at_once():
    source = Source()
    for name in range(4000, 0, -1):
        source.applier.apply(msgpack.packb([1.0, [stored([name], [1, 2], name - 1)]]))
    assert source.orphans == 4000
    source.apply(stored([0], [1, 2]))
    assert (source.orphans, source.known) == (0, 4001)
    assert source.depths([1, 2] * 4001) == (4001, 4001, 4001)


def test_a_million_orphans_and_cycles_of_them_are_bounded():
    source = Source()
    for start in range(0, 1_000_000, 2000):
        names = range(start, start + 2000)
        source.applier.apply(msgpack.packb([1.0, [stored([name], [1, 2], name ^ 1) for name in names]]))
    assert (source.orphans, source.known) == (4096, 0)
    assert source.dropped == {"orphan_limit": 1_000_000 - 4096}


def test_orphans_expire_and_the_oldest_make_room():
    source = Source(max_orphan_blocks=2, orphan_ns=10)
    source.apply(stored([9], [1, 2], 100), stored([10], [1, 2], 101), stored([11], [1, 2], 102))
    assert (source.orphans, source.dropped) == (2, {"orphan_limit": 1})
    source.apply(now=11)
    assert (source.orphans, source.dropped) == (0, {"orphan_limit": 1, "orphan_expired": 2})


def test_adapters_and_salts_have_roots_of_their_own():
    source = Source()
    source.apply(
        stored([1], [1, 2], lora_name="a", lora_id=1, extra_keys=[["a"]]),
        stored([2], [1, 2], lora_id=2, extra_keys=[["b", "salt"]]),
        stored([3], [1, 2], extra_keys=[["salt"]]),
        stored([4], [1, 2], cache_salt="other"),
    )
    one = (1, 1, 1)
    assert source.depths([1, 2]) == (0, 0, 0)
    assert source.depths([1, 2], "a") == source.depths([1, 2], "b", "salt") == one
    assert source.depths([1, 2], salt="salt") == source.depths([1, 2], salt="other") == one
    source.apply(stored([5], [1, 2], lora_id=3))
    assert source.dropped == {"namespace": 1}


def test_a_picture_never_equals_text():
    source = Source()
    source.apply(stored([7, 8, 9], TOKENS, extra_keys=[None, [["picture", 0]], [b"bytes"]]))
    assert (source.depths(), source.known) == ((1, 1, 1), 3)


def test_known_hashes_with_other_tokens_are_contradictions():
    source = Source()
    source.apply(stored([7], [1, 2]), stored([8], [3, 4]), stored([9], [5, 6]))
    assert source.apply(stored([7], [9, 9])) == (False, False)
    assert (source.depths([1, 2]), source.depths([9, 9])) == ((0, 0, 0), (1, 1, 1))
    assert source.apply(*[stored([name], [name, 0]) for name in (7, 8, 9)]) == (False, True)
    assert (source.tiers, source.contradictions) == ([3, 0, 0], 4)
    other = Source(counts_copies=False)
    other.apply(stored([7], [1, 2]), stored([7], [9, 9]))
    assert (other.depths([1, 2]), other.dropped) == ((1, 1, 1), {"namespace": 1})


@pytest.mark.parametrize(
    ("reason", "event"),
    [
        ("remote", stored([7], [1, 2], locality="REMOTE")),
        ("unknown_medium", stored([7], [1, 2], medium="FS")),
        ("pool_medium", stored([7], [1, 2], medium="SHARED")),
        ("other_group", stored([7], [1, 2], kv_cache_spec_kind="mamba", group_idx=1)),
        ("block_size", stored([7], [1, 2, 3], block_size=3)),
        ("shape", stored([7], [1, 2, 3])),
    ],
)
def test_what_is_dropped_leaves_the_rest(reason, event):
    source = Source()
    source.apply(event, stored([8], [1, 2]))
    assert (source.dropped, source.depths([1, 2])) == ({reason: 1}, (1, 1, 1))


def test_the_first_stored_event_fixes_the_block_size():
    source = Source()
    source.apply(stored([8], [1, 2]), stored([9], [1, 2, 3, 4], block_size=4))
    assert source.dropped == {"block_size": 1}
    source.applier.new_incarnation()
    source.apply(stored([9], [1, 2, 3, 4], block_size=4))
    assert source.depths() == (2, 2, 2)


def test_the_lowest_group_of_full_attention_counts():
    source = Source()
    source.apply(stored([1], [7, 7], group_idx=1), stored([2], [1, 2], group_idx=0))
    assert (source.depths([7, 7]), source.depths([1, 2])) == ((0, 0, 0), (1, 1, 1))
    source.apply(stored([3], [5, 5], group_idx=2, kv_cache_spec_kind="full_attention"))
    assert (source.depths([1, 2]), source.depths([5, 5])) == ((0, 0, 0), (1, 1, 1))
    source.apply(removed(3, group_idx=0))
    assert (source.depths([5, 5]), source.dropped) == ((1, 1, 1), {"other_group": 1})


def test_its_maximum_of_blocks_is_kept():
    source = Source(max_blocks=2)
    source.apply(stored([7, 8, 9], TOKENS))
    assert (source.depths(), source.known, source.dropped) == ((2, 2, 2), 2, {"full": 1})


def test_a_worker_that_left_takes_nothing():
    source = Source()
    source.apply(stored([7], [1, 2]))
    source.blocks.set_workers([(2, 0)])
    other = testing.EventApplier(source.blocks, 2)
    source.blocks.sweep()
    other.apply(msgpack.packb([1.0, [stored([7], [3, 4])]]))
    source.apply(stored([8], [5, 6]))
    assert (source.known, source.dropped) == (0, {"unknown_worker": 1})
    del source.applier
    assert source.blocks.counts(2) == [1, 0, 0]


def test_real_frames_give_the_picture_of_the_slow_twin():
    for experiment in dict.fromkeys(frame["experiment"] for frame in FRAMES):
        source, twin, prompts = Source(16), Picture(), set()
        for frame in FRAMES:
            if frame["experiment"] != experiment:
                continue
            payload = bytes.fromhex(frame["payload"])
            batch = testing.decode_kv_batch(payload)
            twin.apply(batch)
            source.applier.apply(payload)
            prompts |= set(twin.keys.values())
        if source.block_size:
            blocks = twin.blocks(16, source.block_size)
            for adapter, salt, tokens in prompts:
                want = depths(blocks, adapter, salt, tokens, 16)
                assert source.depths(list(tokens), adapter, salt) == want
        assert source.contradictions == source.stale_refs == 0


def payloads(name: str) -> Iterator[bytes]:
    """The last frame of each message."""
    raw, at = lzma.decompress(base64.b64decode((DATA / name).read_bytes())), 0
    while at < len(raw):
        count, at = raw[at], at + 1
        for left in range(count, 0, -1):
            size, at = int.from_bytes(raw[at : at + 4], "big"), at + 4
            if left == 1:
                yield raw[at : at + size]
            at += size


def test_two_real_engines_under_load():
    blocks = testing.ReportedBlocks(16)
    blocks.set_workers([(1, 0), (2, 1)])
    for worker in (1, 2):
        applier, twin = testing.EventApplier(blocks, worker), Picture()
        for payload in payloads(f"vllm_0.32_engine_{worker}.xz.base64"):
            applier.apply(payload)
            twin.apply(testing.decode_kv_batch(payload))
        held, figures = twin.blocks(16, 32), applier.figures()
        assert twin.negative == figures["unknown_removed"] == figures["orphans"] == 0
        assert (figures["dropped"], figures["contradictions"]) == ({}, 0)
        assert (figures["known"], figures["tiers"]) == (len(twin.keys), [len(held), 0, 0])
        for adapter, salt, tokens in set(twin.keys.values()):
            found = blocks.match(blocks.chain(list(tokens), adapter, salt))
            assert found.get(applier.cache, (0, 0, 0)) == depths(held, adapter, salt, tokens, 16)
        assert blocks.check() == ""


def test_hostile_streams_are_bounded(rng):
    source = Source(max_orphan_blocks=100, max_blocks=500)
    names = range(2000)
    for _ in range(600):
        events = []
        for _ in range(20):
            size = rng.choice([2, 2, 2, 2, 4, 3, 0])
            hashes = rng.sample(names, rng.randrange(1, 4))
            hashes += hashes[: rng.random() < 0.1]
            tokens = [rng.randrange(3) for _ in range(size * len(hashes))]
            parent = rng.choice([None, *hashes, *rng.sample(names, 5)])
            medium = rng.choice(["GPU", "CPU", "DISK"])
            events.append(stored(hashes, tokens, parent, block_size=size, medium=medium))
            events.append(removed(*rng.sample(names, 3), medium=medium))
        source.applier.apply(msgpack.packb([1.0, events]))
        figures = source.applier.figures()
        assert figures["orphans"] <= 100
        assert figures["known"] <= 500
    assert source.blocks.check() == ""
    source.apply(CLEARED)
    assert (source.known, source.orphans, source.tiers) == (0, 0, [0, 0, 0])
    source.blocks.sweep()
    assert source.blocks.pairs() == 0
