"""Where a request gets a marker, by Python's json: the twin of cpp/routing/cache_control.h."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.models.body_map import members

MARKER = {"type": "ephemeral"}
NAME = "cache_control"
_BLANKS = "".join(map(chr, range(33)))


class Edited(NamedTuple):
    result: str
    body: Any  # None unless it is added


class _Object(dict[str, Any]):
    """Two of its names are equal."""

    repeats = False


def _object(pairs: Sequence[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    made.repeats = len(made) < len(pairs)
    return made


def _has_text(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") != "text":
        return False
    text = block.get("text")
    return isinstance(text, str) and text.strip(_BLANKS) != ""


def edited(text: str) -> Edited:
    """Of a valid JSON text in which no name of an object inside has an escape."""
    body = json.loads(text, object_pairs_hook=_object)
    if not isinstance(body, _Object):
        return Edited("unreadable", None)
    if body.repeats or any("\\" in member.spelled_name for member in members(text) or ()):
        return Edited("odd_names", None)
    if NAME in body:
        return Edited("present", None)
    system = body.get("system")
    result = copy.deepcopy(body)
    if isinstance(system, str):
        blocks: list[Any] = [{"type": "text", "text": system}]
    elif isinstance(system, list):
        blocks = list(system)
    else:
        return Edited("no_text", None)
    for block in blocks:
        if isinstance(block, _Object) and block.repeats:
            return Edited("odd_names", None)
        if isinstance(block, _Object) and NAME in block:
            return Edited("present", None)
    with_text = [at for at, block in enumerate(blocks) if _has_text(block)]
    if not with_text:
        return Edited("no_text", None)
    marks = text.count(f'"{NAME}"')
    if marks >= 4 or (marks and '"ttl"' in text):
        return Edited("limit", None)
    blocks[with_text[-1]] = blocks[with_text[-1]] | {NAME: MARKER}
    result["system"] = blocks
    return Edited("added", result)
