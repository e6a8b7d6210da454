"""One variable of a file `.env`, for those who start the router where vllm-project/router read that file.

The nearest `.env` counts, of the working directory or of one above it; the environment itself comes first.
Only the variable that is asked for is read, and nothing is put into the environment.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*$")


def dotenv_value(name: str, directory: Path) -> tuple[str, Path] | None:
    """The value of a variable in the nearest `.env`, and that file; None if it has none.

    Raises:
        ValueError: the file cannot be read, or the value has a quote that does not end. A setting that guards
            the router must not be lost silently.
    """
    for place in (directory, *directory.parents):
        file = place / ".env"
        if not file.is_file():
            continue
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ValueError(
                f"{file} cannot be read: {reason}; it may set {name}: make it readable, or set {name} in the "
                "environment"
            ) from None
        for number, line in enumerate(lines, 1):
            match = _LINE.match(line)
            if match and match[1] == name:
                return _unquoted(match[2], f"{file}, line {number}: {name}"), file
        return None
    return None


def _unquoted(text: str, where: str) -> str:
    """The value as a shell would take it: quotes removed, a comment dropped, `$NAME` filled in."""
    quote = text[:1]
    if quote not in ("'", '"'):
        return os.path.expandvars(re.sub(r"(^|\s+)#.*$", "", text))
    end = text.find(quote, 1)
    if end < 0:
        raise ValueError(f"{where} has a quote that does not end; write it as {quote}…{quote} on one line")
    return text[1:end] if quote == "'" else os.path.expandvars(text[1:end])
