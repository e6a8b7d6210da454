"""What a message says of a value that may hold a secret: what it is and how long, never what it says.

    api_key         SECRETKEY                     a text of 9 characters
    worker_urls     http://user:PASSWORD@a:1      http://...@a:1
    any setting     {api-key: SECRETKEY}          api-key=...

A message may end in a log that many can read, in a CI job's output or in an issue. These functions decide for
every message of the command, of YAML files and of the library; they would rather hide too much than too
little, since the name of the setting and the rule that it breaks are what helps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sized

# Names of members whose values are not shown, in mappings that somebody gave to the wrong setting.
SECRET_NAME = re.compile(r"key|secret|token|passw|auth|credential", re.IGNORECASE)

# What is no host and no port may be the beginning of a user name or a password with a blank in it.
_HOST = r"(?:\[[0-9a-fA-F:.]*\]|[A-Za-z0-9_.*-]*)"
_NO_NUMBER = r"(?![0-9]+(?![A-Za-z0-9_.*-]))"
_PORT = r"(?:[1-9][0-9]{0,4})?"
# One URL that holds no secret: no user name, no password, no query. "@2" at the end is a data-parallel rank.
_OPEN = re.compile(
    rf"(?:[a-z]{{2,8}}://{_NO_NUMBER})?{_HOST}(?::{_PORT})?(?:/(?!/)[^\s,@?#]*)?(?:@[0-9]+)?", re.IGNORECASE
)
_OPEN_BEGINNING = re.compile(rf"([a-z]{{2,8}}://)?({_HOST})(?=[:/?#])", re.IGNORECASE)
_SCHEMES = ("http://", "https://", "grpc://", "grpcs://", "tcp://", "unix://", "ftp://", "ws://", "wss://")
_WORD = re.compile(r"[^\s,]+")


def described(value: object) -> str:
    """What a value is, without any of it."""
    if value is None:
        return "unset"
    if isinstance(value, str):
        return f"a text of {len(value)} characters" if value else "an empty text"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, Mapping):
        return f"a mapping of {len(value)} names"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, Sized) else "")


def is_open_url(text: str) -> bool:
    """Whether a URL can be shown as it is."""
    return _OPEN.fullmatch(text) is not None


def shown_urls(text: str) -> str:
    """URLs, separated by blanks or commas, without user names, passwords and queries.

    All between the first scheme and the last '@' that is none of a rank is left out: a password may have
    blanks, commas, slashes and further '@' in it.
    """
    words = list(_WORD.finditer(text))
    hidden = next((word for word in reversed(words) if "@" in word[0] and not is_open_url(word[0])), None)
    if hidden is None:
        return " ".join(_shown_words([word[0] for word in words]))
    tail = hidden[0].rpartition("@")[2]
    more = [word[0] for word in words if word.start() >= hidden.end()]
    begin = f"{_scheme(text.lstrip())}...@{tail if is_open_url(tail) else '...'}"
    return " ".join([begin, *_shown_words(more, after_hidden=not is_open_url(tail))])


def _shown_words(words: list[str], after_hidden: bool = False) -> list[str]:
    """Words without '@'. What follows a query that is left out, and begins no URL, may be the rest of it."""
    shown = []
    for word in words:
        rest = after_hidden and not _scheme(word)
        shown.append("..." if rest else _shown_url(word))
        after_hidden = rest or not is_open_url(word)
    return shown


def _shown_url(word: str) -> str:
    if is_open_url(word):
        return word
    beginning = _OPEN_BEGINNING.match(word)
    if beginning is None or (beginning[1] or "http://").lower() not in _SCHEMES:
        return "..."
    return f"{beginning[1] or ''}{beginning[2]}{word[beginning.end()]}..."


def _scheme(text: str) -> str:
    return next((scheme for scheme in _SCHEMES if text.lower().startswith(scheme)), "")


def without_query(path: str) -> str:
    """The path of a request, without what follows "?" in it."""
    path, mark, query = path.partition("?")
    return f"{path}?..." if mark and query else path + mark


def without_userinfo(text: str) -> str:
    """Any text, without what stands between "://" and "@" in it."""
    if "://" not in text or "@" not in text or all(is_open_url(word) for word in _WORD.findall(text)):
        return text
    return re.sub(r"://.*@", "://...@", text, flags=re.DOTALL)
