"""The members of a JSON object and where they stand, by Python's json; the twin of cpp/routing/body_map.h.

And what an edit of them means: the twin of cpp/routing/body_patch.h.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()

Pairs = list[tuple[str, Any]]


class Member(NamedTuple):
    name: str
    value: Any
    spelled_name: str
    spelled_value: str


def members(text: str) -> list[Member] | None:
    """None if the text is no JSON object."""
    try:
        if not isinstance(json.loads(text), dict):
            return None
    except ValueError:
        return None
    found = []
    at = _after_blanks(text, text.index("{") + 1)
    while text[at] != "}":
        name, name_end = json.decoder.scanstring(text, at + 1, True)
        begin = _after_blanks(text, _after_blanks(text, name_end) + 1)
        value, end = _DECODER.raw_decode(text, begin)
        found.append(Member(name, value, text[at + 1 : name_end - 1], text[begin:end]))
        at = _after_blanks(text, end)
        if text[at] == ",":
            at = _after_blanks(text, at + 1)
    return found


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks
    return blanks.end()


def pairs(text: str) -> Pairs:
    """The top-level members, repeated ones too; objects inside are dicts."""
    return [(member.name, member.value) for member in members(text) or []]


def edited(before: Pairs, removed: set[str], inserted: Pairs) -> Pairs:
    """`removed` may have names with * at their end."""
    gone = removed | {name for name, _ in inserted}

    def goes(name: str) -> bool:
        return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in gone)

    return inserted + [(name, value) for name, value in before if not goes(name)]
