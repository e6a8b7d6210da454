"""What readers of trace formats share: a record, the object that reads one file, and checked members."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from vllm_router._messages import quoted
from vllm_router.replay.trace import CLASSES

# A length above this is a mistake: no engine takes such a prompt.
MAX_TOKENS = 1 << 27


class Misfit(Exception):  # noqa: N818, it never leaves a reader
    """A line does not fit. The text completes "line 7: …"."""


@dataclasses.dataclass
class Record:
    """What one line says."""

    arrival_s: float
    input_tokens: int
    output_tokens: int
    blocks: Iterable[int]
    session: int | None = None
    priority_class: int | None = None
    """Its place in CLASSES."""
    tenant: str | None = None


class Format:
    """How the lines of one format are read. One object reads one file."""

    block_size = 0
    times_may_go_back = False  # records are written when requests end, not when they come
    has_head = False

    def head(self, line: str) -> None:
        """Reads a first line that is no request."""

    def record(self, line: str) -> Record | None:
        """Reads one line; None is a line that says nothing; raises Misfit."""
        raise NotImplementedError


def object_of(line: str) -> dict[str, Any]:
    """The line as a JSON object."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise Misfit(f"it is not JSON ({error})") from None
    except RecursionError:
        raise Misfit("it is nested too deeply") from None
    if not isinstance(row, dict):
        raise Misfit("it is not a JSON object")
    return row


def number_of(row: dict[str, Any], name: str) -> float:
    """A member that is a number, 0 or more."""
    value = row.get(name)
    if name not in row:
        raise Misfit(f"{name} is missing")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Misfit(f"{name} is {quoted(value)}; it must be a number")
    number = float(value) if abs(value) < 1e18 else math.inf
    if not math.isfinite(number) or number < 0:
        raise Misfit(f"{name} is {value}; it must be 0 or more")
    return number


def whole_of(row: dict[str, Any], name: str) -> int:
    """A member that is a whole number."""
    value = row.get(name)
    if name not in row:
        raise Misfit(f"{name} is missing")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misfit(f"{name} is {quoted(value)}; it must be a whole number")
    return value


def length_of(row: dict[str, Any], name: str, least: int) -> int:
    """A member that counts tokens, 1 for 0."""
    value = whole_of(row, name)
    if not least <= value <= MAX_TOKENS:
        raise Misfit(f"{name} is {value}; it must be from {least} to {MAX_TOKENS}")
    return max(1, value)


def class_of(row: dict[str, Any]) -> int | None:
    """The member `priority_class`, which may be missing, as a place in CLASSES."""
    name = row.get("priority_class")
    if name is None:
        return None
    if not isinstance(name, str) or name.lower() not in CLASSES:
        raise Misfit(f"priority_class is {quoted(name)}; it must be one of {', '.join(CLASSES)}")
    return CLASSES.index(name.lower())


def tenant_of(row: dict[str, Any]) -> str | None:
    """The member `tenant`, which may be missing."""
    name = row.get("tenant")
    if name is not None and not (isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9._@/:-]{1,64}", name)):
        raise Misfit(f"tenant is {quoted(name)}; it must be 1 to 64 letters, digits or . _ - @ / :")
    return name


def too_many(blocks: int, tokens: int, size: int) -> str:
    """What to say of more blocks than tokens fill."""
    return f"it has {blocks} blocks for {tokens} tokens; {-(-tokens // size)} blocks of {size} hold them"


def blocks_of(row: dict[str, Any], name: str, tokens: int, size: int) -> list[int]:
    """A member that lists the blocks of a prompt."""
    ids = row.get(name)
    if name not in row:
        raise Misfit(f"{name} is missing")
    if not isinstance(ids, list) or not all(
        isinstance(block, int) and not isinstance(block, bool) and 0 <= block < 1 << 64 for block in ids
    ):
        raise Misfit(f"{name} must be a list of whole numbers, 0 or more")
    if len(ids) > -(-tokens // size):
        raise Misfit(too_many(len(ids), tokens, size))
    return ids


def moment_of(text: str, name: str) -> float:
    """Seconds since 1970."""
    # Seven digits of a second, as .NET writes them, are one more than Python reads.
    shorter = re.sub(r"(\.\d{6})\d+", r"\1", text.replace("Z", "+00:00"))
    try:
        moment = dt.datetime.fromisoformat(shorter)
    except ValueError:
        raise Misfit(f"{name} is {quoted(text)}; it must look like 2023-11-16 18:15:46.680590") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.timezone.utc)
    return moment.timestamp()
