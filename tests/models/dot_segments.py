"""Dot segments by trying every way in which a server may read a path; the twin of cpp/http/dot_segments.h."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

_SOFT = re.compile(rb"\\|%(?:25)*(?:2f|5c)", re.IGNORECASE)  # what some servers take for a separator
_ENCODED = re.compile(rb"%(?:25)*([0-9a-f]{2})", re.IGNORECASE)


def resolve(path: bytes) -> bytes | None:
    """The path without dot segments, or None if some server may find that it leaves where it begins."""
    if not path.startswith(b"/"):
        return path
    if any(_leaves(parts) for parts in _readings(path)):
        return None
    kept: list[bytes] = []
    segments = path[1:].split(b"/")
    for segment in segments:
        plain = re.sub(rb"%2e", b".", segment, flags=re.IGNORECASE)
        if plain == b"..":
            kept.pop()
        elif plain != b".":
            kept.append(segment)
    if plain in (b".", b".."):
        kept.append(b"")
    return b"/" + b"/".join(kept)


def _readings(path: bytes) -> Iterator[list[bytes]]:
    """The segments, for each choice of which soft separators separate."""
    softs = list(_SOFT.finditer(path))
    for choice in itertools.product((False, True), repeat=len(softs)):
        text, at = b"", 1
        for soft, separates in zip(softs, choice, strict=True):
            text += path[at : soft.start()] + (b"/" if separates else b"_")
            at = soft.end()
        yield (text + path[at:]).split(b"/")


def _leaves(parts: list[bytes]) -> bool:
    depth = 0
    for part in parts:
        plain = _ENCODED.sub(lambda match: bytes([int(match[1], 16)]), part)
        name = plain.partition(b";")[0]  # some servers cut parameters off
        if name == b"..":
            depth -= 1
        elif name not in (b"", b"."):  # some servers drop empty segments
            depth += 1
        if depth < 0:
            return True
    return False
