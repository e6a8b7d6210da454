"""cpp/events/kv_event.h: payloads of real engines, each form, and what is wrong with one."""

import json
from pathlib import Path

import msgpack
import pytest

from tests.models import kv_event as model
from tests.rows import for_each_row
from vllm_router import _core_testing as testing

DATA = Path(__file__).parents[2] / "data" / "kv_events"
FRAMES = [json.loads(line) for line in (DATA / "vllm_0.32.jsonl").read_text().splitlines()]
STORED = {"type": "BlockStored", "block_hashes": [7], "token_ids": [1, 2], "block_size": 2}


def decode(batch: object) -> dict:
    payload = batch if isinstance(batch, bytes) else msgpack.packb(batch)
    decoded = testing.decode_kv_batch(payload)
    assert decoded == model.decode(payload)
    assert decoded is not None
    return decoded


def event(**fields: object) -> dict:
    """One stored event with these fields."""
    decoded = decode([1.5, [STORED | fields]])
    assert decoded["dropped"] == {}
    return decoded["events"][0]


# ---- real engines


@for_each_row("frame", FRAMES, ids=lambda frame: f"{frame['experiment']}-{frame['seq']}")
def test_frames_of_vllm_0_32(frame):
    decoded = decode(bytes.fromhex(frame["payload"]))
    assert decoded["dropped"] == {}
    assert decoded["rank"] == 0
    assert 1_700_000_000 < decoded["seconds"] < 2_000_000_000
    for one in decoded["events"]:
        if one["kind"] == "stored":
            assert len(one["tokens"]) == len(one["hashes"]) * one["block_size"]


def test_an_adapter_and_a_salt_are_in_the_extra_keys():
    frame = next(frame for frame in FRAMES if frame["experiment"] == "lora_lora_a_salt")
    first = decode(bytes.fromhex(frame["payload"]))["events"][0]
    assert first["lora_name"] != b""
    assert [(block, kind) for block, kind, _, _ in first["extras"]][:2] == [(0, "name"), (0, "name")]


def test_arrays_of_vllm_before_0_24():
    payload = bytes.fromhex(
        "93cb3ff80000000000009293ac426c6f636b52656d6f76656491cfb0147556276afc9ca347505598ab426c6f636b53746f72"
        "656491cfb0147556276afc9cc0940102cd012cce0001117004c0a3475055c000"
    )
    decoded = decode(payload)
    assert (decoded["seconds"], decoded["rank"], decoded["dropped"]) == (1.5, 0, {})
    removed, stored = decoded["events"]
    assert (removed["kind"], removed["hashes"]) == ("removed", [12687895063098490012])
    assert (stored["kind"], stored["hashes"], stored["parent"]) == ("stored", [12687895063098490012], None)
    assert (stored["tokens"], stored["block_size"], stored["medium"]) == ([1, 2, 300, 70000], 4, "gpu")


def test_arrays_of_sglang():
    payload = bytes.fromhex(
        "93cb3ff80000000000009197ab426c6f636b53746f72656491d3cf97adeedb59e05bc0940102030404c0aa4350555f50494e"
        "4e454401"
    )
    decoded = decode(payload)
    (stored,) = decoded["events"]
    assert (stored["hashes"], stored["medium"]) == ([-3488128144981237669 % 2**64], "host")
    assert decoded["rank"] == 1


# ---- forms


@for_each_row(
    ("name", "ours"),
    [
        (None, "gpu"),
        ("GPU", "gpu"),
        ("device", "gpu"),
        ("CPU", "host"),
        ("cpu_pinned", "host"),
        ("CPU_TIER1", "host"),
        ("Host", "host"),
        ("CPU_TIER2", "external"),
        ("disk", "external"),
        ("NVME", "external"),
        ("STORAGE", "external"),
        ("EXTERNAL", "pool"),
        ("network", "pool"),
        ("REMOTE", "pool"),
        ("shared", "pool"),
        ("FS", "unknown"),
        ("", "unknown"),
    ],
)
def test_media(name, ours):
    assert event(medium=name)["medium"] == ours
    if name is not None:
        assert testing.kv_medium(name) == ours


def test_options_of_sglang_stand_where_the_adapters_name_does():
    batch = [0.0, [["BlockStored", [7], None, [1], 1, None, "GPU", {"cache_salt": "pepper", "other": [1]}]]]
    assert decode(batch)["events"][0]["cache_salt"] == b"pepper"
    assert event(cache_salt="pepper")["cache_salt"] == b"pepper"
    assert event(lora_name="a")["lora_name"] == b"a"


def test_locality_and_attention():
    assert [event(locality=name)["is_remote"] for name in (None, "LOCAL", "local", "REMOTE")] == [
        False,
        False,
        False,
        True,
    ]
    kinds = [None, "full_attention", "mla_attention", "sink_full_attention", "sliding_window"]
    assert [event(kv_cache_spec_kind=kind)["spec_kind"] for kind in kinds] == [
        "unnamed",
        "full",
        "full",
        "full",
        "other",
    ]


# ---- what is wrong


@for_each_row(
    "batch",
    [None, 1, "text", [], [1.5], ["now", []], [1.5, {}], [1.5, [], "rank"], {}, {"ts": 1.5}, {"events": 1}],
    ids=repr,
)
def test_what_is_no_batch(batch):
    assert testing.decode_kv_batch(msgpack.packb(batch)) is None


def test_a_payload_that_is_cut_off_or_goes_on_is_no_batch():
    payload = msgpack.packb([1.5, [STORED, {"type": "AllBlocksCleared"}], 0])
    for size in range(len(payload)):
        assert testing.decode_kv_batch(payload[:size]) is None
    assert testing.decode_kv_batch(payload + b"\x00") is None
    assert testing.decode_kv_batch(payload) is not None


def test_a_huge_count_costs_nothing():
    assert testing.decode_kv_batch(b"\x92\x01\xdd\xff\xff\xff\xff") is None
    assert (
        testing.decode_kv_batch(b"\x92\x01\x91\x82\xa4type\xabBlockStored\xa9token_ids\xdd\x7f\xff\xff\xff")
        is None
    )
    assert testing.decode_kv_batch(b"\x92\x01\x91" + b"\x91" * 100_000) is None


@for_each_row(
    ("batch", "rank"),
    [
        ([1.5, [], 3], 3),
        ([1.5, [], None], None),
        ([1.5, []], None),
        ([1.5, [["BlockRemoved", [1]]], 7, "more"], 7),
        ({"ts": 1.5, "events": [], "data_parallel_rank": 2}, 2),
        ({"ts": 1.5, "events": []}, None),
        ([], "malformed"),
        ([1.5], "malformed"),
        ([1.5, [], "x"], "malformed"),
        ("text", "malformed"),
        ({1: 2}, "malformed"),
    ],
)
def test_the_rank_is_read_without_the_events(batch, rank):
    payload = msgpack.packb(batch)
    assert testing.read_batch_rank(payload) == rank
    if rank != "malformed" and len(payload) > 1:
        assert testing.read_batch_rank(payload[:-1]) in ("malformed", None, rank)


@pytest.mark.parametrize(
    "wrap", [lambda event: [1.5, [event], 3], lambda event: {"events": [event], "data_parallel_rank": 3}]
)
def test_the_rank_is_read_behind_whatever_is_decoded(wrap):
    deep = 1
    for _ in range(16):  # as deep as MsgpackCursor::Skip() enters
        deep = [deep]
    payload = msgpack.packb(wrap({"type": "BlockRemoved", "block_hashes": [1], "unknown": deep}))
    assert testing.decode_kv_batch(payload)["rank"] == 3
    assert testing.read_batch_rank(payload) == 3
