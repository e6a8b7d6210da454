"""The slow, obvious twin of cpp/events/kv_event.cc: objects of the msgpack library, read field by field."""

from __future__ import annotations

from typing import Any

import msgpack
import xxhash

STORED = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
)
REMOVED = ("block_hashes", "medium", "group_idx")
MEDIA = {
    "gpu": "gpu device",
    "host": "cpu cpu_pinned cpu_tier1 host",
    "external": "cpu_tier2 disk nvme storage",
    "pool": "external network remote shared",
}


class MalformedError(Exception):
    """An event that cannot be read."""


def require(condition: bool) -> None:
    if not condition:
        raise MalformedError


def medium(name: str) -> str:
    return next((ours for ours, names in MEDIA.items() if name.lower() in names.split()), "unknown")


def integer(value: Any, least: int, most: int) -> int:
    require(type(value) is int and least <= value <= most)
    return value


def name(value: Any) -> str:
    require(type(value) is str and len(value.encode()) <= 1024)
    return value


def engine_hash(value: Any) -> int:
    if type(value) is int:
        return value % 2**64
    if type(value) is bytes:
        return int.from_bytes(value[-8:], "big")
    require(type(value) is str)
    return xxhash.xxh3_64_intdigest(value.encode())


def extra(block: int, key: Any) -> tuple[int, str, bytes, int]:
    if type(key) is bytes:
        return block, "bytes", key, 0
    if type(key) is list:
        require(key != [])
        offset = 0
        if len(key) > 1:
            require(type(key[1]) is int)
            offset = (key[1] + 2**63) % 2**64 - 2**63
        return block, "media", name(key[0]).encode(), offset
    return block, "name", name(key).encode(), 0


def read(event: dict[str, Any], field: str, value: Any) -> None:
    if value is None:
        return
    if field == "block_hashes":
        require(type(value) is list)
        event["hashes"] = [engine_hash(item) for item in value]
    elif field == "parent_block_hash":
        event["parent"] = engine_hash(value)
    elif field == "token_ids":
        require(type(value) is list)
        for item in value:
            pair = type(item) is list
            require(not pair or item != [])
            event["tokens"].append(integer(item[0] if pair else item, 0, 2**32 - 1))
            event["is_bigram"] = event["is_bigram"] or pair
    elif field == "block_size":
        event["block_size"] = integer(value, 0, 4096)
    elif field == "lora_id":
        event["lora_id"] = (integer(value, -(2**63), 2**64 - 1) + 2**63) % 2**64 - 2**63
    elif field == "medium":
        event["medium"] = medium(name(value))
    elif field == "lora_name" and type(value) is dict:
        for option, its in value.items():
            if name(option) == "cache_salt":
                read(event, "cache_salt", its)
    elif field in ("lora_name", "cache_salt"):
        event[field] = name(value).encode()
    elif field == "extra_keys":
        require(type(value) is list)
        for block, keys in enumerate(value):
            require(keys is None or type(keys) is list)
            event["extras"] += [extra(block, key) for key in keys or []]
    elif field == "group_idx":
        event["group"] = integer(value, 0, 65_535)
    elif field == "kv_cache_spec_kind":
        full = name(value) in ("full_attention", "mla_attention", "sink_full_attention")
        event["spec_kind"] = "full" if full else "other"
    elif field == "locality":
        event["is_remote"] = name(value).lower() != "local"


def decode_event(raw: Any) -> dict[str, Any] | str:
    """The event, or why it is dropped."""
    event: dict[str, Any] = {
        "kind": "",
        "medium": "gpu",
        "spec_kind": "unnamed",
        "is_remote": False,
        "is_bigram": False,
        "group": 0,
        "block_size": 0,
        "parent": None,
        "lora_id": None,
        "lora_name": b"",
        "cache_salt": b"",
        "hashes": [],
        "tokens": [],
        "extras": [],
    }
    kinds = {"BlockStored": "stored", "BlockRemoved": "removed", "AllBlocksCleared": "cleared"}
    try:
        if type(raw) is dict:
            for field, value in raw.items():
                if name(field) != "type":
                    read(event, field, value)
                    continue
                if name(value) not in kinds:
                    return "unknown_tag"
                event["kind"] = kinds[value]
        else:
            require(type(raw) is list and raw != [])
            if name(raw[0]) not in kinds:
                return "unknown_tag"
            event["kind"] = kinds[raw[0]]
            fields = {"stored": STORED, "removed": REMOVED, "cleared": ()}[event["kind"]]
            for field, value in zip(fields, raw[1:], strict=False):
                read(event, field, value)
        require(event["kind"] == "cleared" or (event["kind"] != "" and event["hashes"] != []))
    except MalformedError:
        return "malformed_event"
    return event


def decode(payload: bytes) -> dict[str, Any] | None:
    """As _core_testing.decode_kv_batch, of a payload that msgpack can read."""
    raw = msgpack.unpackb(payload, strict_map_key=False)
    if type(raw) is dict:
        seconds, events, rank = raw.get("ts", 0), raw.get("events"), raw.get("data_parallel_rank")
    elif type(raw) is list and len(raw) >= 2:
        seconds, events, rank = raw[0], raw[1], raw[2] if len(raw) > 2 else None
    else:
        return None
    if type(seconds) not in (int, float) or type(events) is not list or type(rank) not in (int, type(None)):
        return None
    decoded = [decode_event(event) for event in events]
    dropped = [reason for reason in decoded if isinstance(reason, str)]
    return {
        "seconds": seconds / 1000 if seconds > 1e11 else float(seconds),
        "rank": rank,
        "events": [event for event in decoded if not isinstance(event, str)],
        "dropped": {reason: dropped.count(reason) for reason in dropped},
    }
