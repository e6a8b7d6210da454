"""Values and names in messages: short, readable, and without what may be secret.

    quoted("…")                              repr(), or what it is and how long
    show(["a", None, True])                  as a person would write it in a sentence
    did_you_mean("polcy", ["policy"])        "; did you mean policy?"

`_secrets.py` knows what may be secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sized

from vllm_router._secrets import SECRET_NAME, without_userinfo

# Longer values are not shown in messages: they may be prompts. cpp/bindings/arguments.h has the same limit.
LONGEST_SHOWN_VALUE = 80


def quoted(value: object) -> str:
    """repr() for a message; of a value that is longer than 80 characters only what it is, and how long."""
    if not isinstance(value, Sized) or len(value) <= LONGEST_SHOWN_VALUE:
        text = without_userinfo(repr(value))
        if len(text) <= LONGEST_SHOWN_VALUE:
            return text
    return _too_long(value)


def _too_long(value: object) -> str:
    kind = type(value).__name__
    unit = "characters" if isinstance(value, (str, bytes)) else "items"
    return f"a {kind} of {len(value)} {unit}" if isinstance(value, Sized) else f"a {kind}"


_DEEPEST_SHOWN = 3


def show(value: object) -> str:
    """A value as a person would write it in a sentence; a long one as `quoted()` does."""
    return _show(value, 0)


def _show(value: object, depth: int) -> str:
    if isinstance(value, Sized) and len(value) > LONGEST_SHOWN_VALUE:
        return _too_long(value)
    text = without_userinfo(_shown(value, depth))
    if len(text) <= LONGEST_SHOWN_VALUE:
        return text
    return _too_long(value) if isinstance(value, Sized) else quoted(value)


def _shown(value: object, depth: int) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple, dict)) and depth >= _DEEPEST_SHOWN:
        return _too_long(value)
    if isinstance(value, tuple):  # a row, whose last words may be left out
        value = [item for item in value if item is not None]
    if isinstance(value, list):
        return " ".join(_show(item, depth + 1) for item in value) or "empty"
    if isinstance(value, dict):
        return " ".join(f"{key}={_member(key, item, depth)}" for key, item in value.items()) or "empty"
    if not isinstance(value, str):
        return str(value)
    return repr(value) if not value.strip() or " " in value or not value.isprintable() else value


def _member(key: object, item: object, depth: int) -> str:
    return "..." if SECRET_NAME.search(str(key)) else _show(item, depth + 1)


def nearest_name(name: str, known: Iterable[str], similarity: float = 0.6) -> str | None:
    """The known name most like `name`, '-' and '_' being the same; None when nothing is like it."""
    by_plain = {candidate.replace("-", "_"): candidate for candidate in known}
    close = difflib.get_close_matches(name.replace("-", "_").lower(), by_plain, n=1, cutoff=similarity)
    return by_plain[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", similarity: float = 0.6) -> str:
    """`; did you mean X?`, or `otherwise`."""
    nearest = nearest_name(name, known, similarity)
    return f"; did you mean {nearest}?" if nearest else otherwise
