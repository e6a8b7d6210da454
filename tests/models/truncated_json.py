"""The value of a JSON object that was cut off somewhere, by a parser that gives what it has; the twin of
cpp/routing/truncated_json.h. Objects are lists of pairs, so that repeated names show.
"""

from __future__ import annotations

import json
import re
from typing import Any


class _CutError(Exception):
    """Nothing of the value is left."""


_BLANKS = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^ \t\r\n,:\[\]{}\"]+")
_CHARACTER = re.compile(
    r'\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]|[^\\"]'
)
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(\\(u[0-9a-fA-F]{0,3})?)?$")


def beginning(data: bytes) -> Any:
    """What `data`, the first bytes of a valid JSON object, holds."""
    text = data.decode("utf-8", errors="ignore")  # half a character at the end goes
    value, _, _ = _value(text, _BLANKS.match(text).end())  # type: ignore[union-attr]
    return value


def _value(text: str, at: int) -> tuple[Any, int, bool]:
    """(value, where it ends, whether it is whole)"""
    if at == len(text):
        raise _CutError
    if text[at] == '"':
        return _string(text, at + 1)
    if text[at] in "{[":
        return _container(text, at)
    scalar = _SCALAR.match(text, at)
    assert scalar
    if scalar.end() == len(text):
        raise _CutError
    return json.loads(scalar[0]), scalar.end(), True


def _string(text: str, at: int) -> tuple[str, int, bool]:
    begin = at
    while at < len(text) and text[at] != '"':
        character = _CHARACTER.match(text, at)
        if not character or _HALF.match(text, at):
            return json.loads(f'"{text[begin:at]}"'), at, False
        at = character.end()
    return json.loads(f'"{text[begin:at]}"', strict=False), at + 1, at < len(text)


def _container(text: str, at: int) -> tuple[list[Any], int, bool]:
    closing = {"{": "}", "[": "]"}[text[at]]
    items: list[Any] = []
    at = _BLANKS.match(text, at + 1).end()  # type: ignore[union-attr]
    while at < len(text) and text[at] != closing:
        try:
            name = None
            if closing == "}":
                name, at, whole = _string(text, at + 1)
                at = _BLANKS.match(text, at).end() + 1  # type: ignore[union-attr]
                if not whole or at > len(text):
                    raise _CutError
                at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
            value, at, whole = _value(text, at)
        except _CutError:
            return items, at, False
        items.append(value if name is None else (name, value))
        if not whole:
            return items, at, False
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at < len(text) and text[at] == ",":
            at = _BLANKS.match(text, at + 1).end()  # type: ignore[union-attr]
    return items, at + 1, at < len(text)
