"""The slow, obvious twin of cpp/events/trtllm_event.cc: objects of the json module, read field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.models.kv_event import MalformedError, engine_hash, integer, name, require

UNSIGNED = 2**63 - 1
LEVELS = ["gpu", "host"]


class Pairs(list):
    """An object as it is written: names may come twice."""


def members(value: Any) -> Iterator[tuple[str, Any]]:
    require(type(value) is Pairs)
    return ((key, member) for key, member in value if member is not None)


def items(value: Any) -> list[Any]:
    require(type(value) is list)
    return value


def bits(value: Any) -> int:
    return integer(value, -(2**63), 2**64 - 1)


def signed(value: Any) -> int:
    return (bits(value) + 2**63) % 2**64 - 2**63


def block_hash(value: Any) -> int:
    require(type(value) is int or type(value) is str)
    return engine_hash(name(value) if type(value) is str else value)


def medium(level: int) -> str:
    return LEVELS[level] if level < len(LEVELS) else "unknown"


def of_batch(kind: str, tier: str, group: int, hashes: list[int], **more: Any) -> dict[str, Any]:
    event: dict[str, Any] = {
        "kind": kind,
        "medium": tier,
        "spec_kind": "unnamed",
        "is_remote": False,
        "is_bigram": False,
        "group": group,
        "block_size": 0,
        "parent": None,
        "lora_id": None,
        "lora_name": b"",
        "cache_salt": b"",
        "hashes": hashes,
        "tokens": [],
        "extras": [],
    }
    return event | more


def read_token(token: Any) -> tuple[int, int]:
    number, extra = None, 0
    for key, value in members(token):
        if key == "token_id":
            number = integer(value, 0, 2**32 - 1)
        elif key == "token_extra_id":
            extra = signed(value)
    require(number is not None)
    assert number is not None
    return number, extra


def read_media(key: Any) -> tuple[bytes, int]:
    text, offset = None, 0
    for member, value in members(key):
        if member == "hash":
            text = name(value).encode()
        elif member == "start_offset":
            offset = signed(value)
    require(text is not None)
    assert text is not None
    return text, offset


def read_block(block: Any) -> dict[str, Any]:
    read: dict[str, Any] = {
        "medium": "gpu",
        "lora_id": None,
        "lora_name": b"",
        "cache_salt": b"",
        "media": [],
    }
    for key, value in members(block):
        if key == "block_hash":
            read["hash"] = block_hash(value)
        elif key == "tokens":
            read["tokens"] = value
        elif key == "cache_level":
            read["medium"] = medium(integer(value, 0, UNSIGNED))
        elif key == "lora_id":
            read["lora_id"] = signed(value)
        elif key in ("lora_name", "cache_salt"):
            read[key] = name(value).encode()
        elif key == "mm_keys":
            read["media"] = value
    require("hash" in read and "tokens" in read)
    require(1 <= len(items(read["tokens"])) <= 4096)
    return read


def read_stored(event: dict[str, Any], data: Any, group: int) -> None:
    parent, blocks, lora_name = None, None, b""
    for key, value in members(data):
        if key == "parent_hash":
            parent = block_hash(value)
        elif key == "blocks":
            blocks = value
        elif key == "lora_name":
            lora_name = name(value).encode()
    require(blocks is not None and items(blocks) != [])
    assert blocks is not None
    for i, written in enumerate(blocks):
        block = read_block(written)
        size = len(block["tokens"])
        event["block_size"] = event["block_size"] or size
        require(size <= event["block_size"])
        if size < event["block_size"]:
            event["partial_blocks"] = len(blocks) - i
            return
        last = event["events"][-1] if event["events"] else None
        if last is None or last["medium"] != block["medium"]:
            more = {"lora_id": block["lora_id"], "lora_name": block["lora_name"] or lora_name}
            more |= {"parent": parent, "block_size": size, "cache_salt": block["cache_salt"]}
            last = of_batch("stored", block["medium"], group, [], **more)
            event["events"].append(last)
        number = len(last["hashes"])
        event["full_blocks"] += 1
        parent = block["hash"]
        last["hashes"].append(parent)
        before = 0
        for token, extra in map(read_token, block["tokens"]):
            last["tokens"].append(token)
            if extra not in (0, before):
                last["extras"].append((number, "media", b"", extra))
            before = extra
        last["extras"] += [(number, "media", *read_media(key)) for key in items(block["media"])]


def read_removed(event: dict[str, Any], data: Any, group: int) -> None:
    hashes: list[int] = []
    for key, value in members(data):
        if key == "block_hashes":
            hashes = [block_hash(each) for each in items(value)]
    require(hashes != [])
    event["events"] = [of_batch("removed", "gpu", group, hashes)]


def read_updated(event: dict[str, Any], data: Any, group: int) -> None:
    moved: dict[str, int] = {}
    changed = None
    for key, value in members(data):
        if key == "block_hash":
            changed = block_hash(value)
        elif key == "cache_level":
            for which, level in members(value):
                if which in ("old_value", "new_value"):
                    moved[which] = integer(level, 0, UNSIGNED)
    require(changed is not None)
    assert changed is not None
    if len(moved) == 2 and moved["old_value"] != moved["new_value"]:
        event["events"] = [
            of_batch("stored", medium(moved["new_value"]), group, [changed]),
            of_batch("removed", medium(moved["old_value"]), group, [changed]),
        ]


def read_created(event: dict[str, Any], data: Any, _group: int) -> None:
    for key, value in members(data):
        if key == "num_blocks_per_cache_level":
            event["gpu_blocks"] = ([integer(level, 0, UNSIGNED) for level in items(value)] or [0])[0]


READERS = {"created": read_created, "stored": read_stored, "removed": read_removed, "updated": read_updated}


def read_event(written: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"kind": "none", "number": None, "rank": 0, "window": 0, "gpu_blocks": 0}
    empty |= {"block_size": 0, "full_blocks": 0, "partial_blocks": 0, "events": [], "dropped": {}}
    event = empty | {"events": []}
    whose: dict[str, Any] = {}
    try:
        for key, value in members(written):
            if key == "event_id":
                whose["number"] = None  # while it is none
                whose["number"] = integer(value, 0, UNSIGNED)
            elif key == "attention_dp_rank":
                whose["rank"] = None
                whose["rank"] = integer(value, 0, 255)
    except MalformedError:
        whose = {"number": None}
    if None in whose.values() or "number" not in whose:
        return empty | {"dropped": {"malformed_event": 1}}
    event |= whose
    tag = None
    try:
        data, group = None, 0
        for key, value in members(written):
            if key == "window_size":
                event["window"] = integer(value, -(2**63), UNSIGNED)
            elif key == "layer_group_id":
                group = integer(value, 0, 65_535)
            elif key == "data":
                data = value
        require(data is not None)
        for key, value in members(data):
            if key == "type":
                tag = None
                tag = name(value)
        require(tag is not None)
        assert tag is not None
        if tag not in READERS:
            return empty | whose | {"dropped": {"unknown_tag": 1}}
        event["kind"] = tag
        READERS[tag](event, data, group)
    except MalformedError:
        return empty | whose | {"dropped": {"malformed_event": 1}}
    return event


def read(response: bytes) -> list[dict[str, Any]] | None:
    """As _core_testing.read_trtllm_events."""

    def whole(text: str) -> int:
        if not -(2**63) <= int(text) < 2**64:
            raise ValueError(text)
        return int(text)

    def never(text: str) -> Any:
        raise ValueError(text)

    try:
        text = response.decode()
        value = json.loads(text, object_pairs_hook=Pairs, parse_int=whole, parse_constant=never)
    except ValueError:
        return None
    return [read_event(event) for event in value] if type(value) is list else None
