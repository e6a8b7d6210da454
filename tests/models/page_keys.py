"""The slow twin of cpp/hashing/page_keys.h."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence


def page_keys(ids: Sequence[int], tokens: int, pairs: bool) -> list[bytes]:
    units = list(itertools.pairwise(ids)) if pairs else [(token,) for token in ids]
    keys: list[bytes] = []
    for end in range(tokens, len(units) + 1, tokens):
        hashed = hashlib.sha256(keys[-1] if keys else b"")
        for unit in units[end - tokens : end]:
            for token in unit:
                hashed.update(token.to_bytes(4, "little"))
        keys.append(hashed.digest())
    return keys
