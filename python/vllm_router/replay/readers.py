"""Readers of recorded traffic: six formats, the same Trace.

    mooncake   {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}    512-token blocks
    bailian    the same in seconds with "chat_id", "parent_chat_id", "turn"                   16-token blocks
    azure      TIMESTAMP,ContextTokens,GeneratedTokens                                        no blocks
    record     the file of `--record-log` (docs/reference/record_log.md)                      hashes of blocks
    weka, tracelab    sessions of agents (agent_readers.py)

The format is recognised by the first line, the compression (.gz, .zst) by the first bytes. A line that does
not fit is reported with its number and skipped, and so is the end of a file that was cut short: what came
before it is used. With `strict` either ends the reading. A line of mooncake and bailian may have
`priority_class` and `tenant`.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vllm_router._messages import quoted
from vllm_router.replay._decompress import CutShort, numbered_lines
from vllm_router.replay._format import (
    Format,
    Misfit,
    Record,
    blocks_of,
    class_of,
    length_of,
    moment_of,
    number_of,
    object_of,
    tenant_of,
    too_many,
    whole_of,
)
from vllm_router.replay.agent_readers import SessionFormat, TraceLab, Weka
from vllm_router.replay.sessions import checked_agents, closed_loop
from vllm_router.replay.trace import DEFAULT_CLASS, NO_TENANT, Trace, TraceError

FORMATS = ("mooncake", "bailian", "azure", "record", "weka", "tracelab")

RECORD_LOG_VERSION = 1
MOONCAKE_BLOCK = 512
BAILIAN_BLOCK = 16
AZURE_BLOCK = 128

# Arrivals that share few times, at least this far apart, were rounded by whoever recorded them.
SHORTEST_TICK_S = 0.5


class _Growing:
    """Columns that grow by a record at a time."""

    def __init__(self) -> None:
        self.arrival_s = array("d")
        self.input_tokens = array("L")
        self.output_tokens = array("L")
        self.block_ids = array("Q")
        self.block_offsets = array("q", [0])
        self.session_ids = array("Q")
        self.classes = array("B")
        self.tenants = array("L")
        self.tenant_names: dict[str, int] = {}
        self.has_classes = False

    def add(self, record: Record) -> None:
        self.arrival_s.append(record.arrival_s)
        self.input_tokens.append(record.input_tokens)
        self.output_tokens.append(record.output_tokens)
        self.block_ids.extend(record.blocks)
        self.block_offsets.append(len(self.block_ids))
        if record.session is not None:
            self.session_ids.append(record.session)
        self.has_classes |= record.priority_class is not None
        self.classes.append(DEFAULT_CLASS if record.priority_class is None else record.priority_class)
        self.tenants.append(self.tenant_names.setdefault(record.tenant or NO_TENANT, len(self.tenant_names)))


class _Mooncake(Format):
    block_size = MOONCAKE_BLOCK

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._sessions = 0

    def record(self, line: str) -> Record:
        row = object_of(line)
        tokens, answer = length_of(row, "input_length", 1), length_of(row, "output_length", 0)
        blocks = blocks_of(row, "hash_ids", tokens, self.block_size)
        arrival_s = number_of(row, "timestamp") / 1000
        session = self._session(blocks)
        return Record(arrival_s, tokens, answer, blocks, session, class_of(row), tenant_of(row))

    def _session(self, blocks: list[int]) -> int:
        """Whoever sent the deepest known block; the first two are not asked: many share a system prompt."""
        session = None
        for block in blocks[2:]:
            owner = self._owners.get(block)
            if owner is None:
                break
            session = owner
        if session is None:
            session = self._sessions
            self._sessions += 1
        for block in blocks:
            self._owners.setdefault(block, session)
        return session


class _Bailian(Format):
    block_size = BAILIAN_BLOCK

    def __init__(self) -> None:
        self._chains: dict[tuple[int, int], int] = {}
        self._roots: dict[int, int] = {}

    def record(self, line: str) -> Record:
        row = object_of(line)
        tokens, answer = length_of(row, "input_length", 1), length_of(row, "output_length", 0)
        blocks = blocks_of(row, "hash_ids", tokens, self.block_size)
        arrival_s = number_of(row, "timestamp")
        chat = whole_of(row, "chat_id")
        parent = whole_of(row, "parent_chat_id") if "parent_chat_id" in row else -1
        root = self._roots.get(parent, parent) if parent >= 0 else chat
        self._roots[chat] = root
        priority_class, tenant = class_of(row), tenant_of(row)
        return Record(arrival_s, tokens, answer, self._chained(blocks), root, priority_class, tenant)

    def _chained(self, blocks: list[int]) -> Iterator[int]:
        """Their ids name the content of a block alone; ours name what came before it, too."""
        place = -1
        for block in blocks:
            place = self._chains.setdefault((place, block), len(self._chains))
            yield place


class _Azure(Format):
    block_size = AZURE_BLOCK
    has_head = True

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._blocks = 0

    def head(self, line: str) -> None:
        self._columns = {name.strip(): place for place, name in enumerate(_cells(line))}
        missing = sorted({"TIMESTAMP", "ContextTokens", "GeneratedTokens"} - self._columns.keys())
        if missing:
            raise TraceError(f"its first line names no column {' and no column '.join(missing)}")

    def record(self, line: str) -> Record:
        cells = _cells(line)
        if len(cells) < len(self._columns):
            raise Misfit(f"it has {len(cells)} columns of {len(self._columns)}")
        row = {name: cells[place].strip() for name, place in self._columns.items()}
        tokens, answer = (
            length_of({name: _parsed(row[name], name)}, name, least)
            for name, least in (("ContextTokens", 1), ("GeneratedTokens", 0))
        )
        arrival_s = moment_of(row["TIMESTAMP"], "TIMESTAMP")
        # Nothing is known of the contents: no prompt shares anything, and each fills its place in a cache.
        full = tokens // self.block_size
        blocks = range(self._blocks, self._blocks + full)
        self._blocks += full
        return Record(arrival_s, tokens, answer, blocks)


class _RecordLog(Format):
    has_head = True
    times_may_go_back = True

    def __init__(self) -> None:
        self._salt = 0
        self._salts: dict[str, int] = {}

    def head(self, line: str) -> None:
        row = object_of(line)
        version = row.get("vllm_router_record_log")
        if version != RECORD_LOG_VERSION:
            raise TraceError(
                f"the record log has version {quoted(version)}; this vllm-router reads version "
                f"{RECORD_LOG_VERSION}"
            )
        size = row.get("block_size")
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 1 << 20:
            raise TraceError(
                f"the record log's head says block_size {quoted(size)}; it must be from 1 to 1048576"
            )
        if self.block_size not in (0, size):
            raise TraceError(
                f"the record log changes its block_size from {self.block_size} to {size}; split the file "
                "there"
            )
        self.block_size = size
        salt = row.get("salt_id")
        if not isinstance(salt, str) or not salt:
            raise TraceError("the record log's head has no salt_id; it must be a text")
        self._salt = self._salts.setdefault(salt, len(self._salts))

    def record(self, line: str) -> Record | None:
        row = object_of(line)
        if "vllm_router_record_log" in row:  # the server was started again
            self.head(line)
            return None
        status = whole_of(row, "status")
        if not 200 <= status <= 299:
            raise Misfit(f"the request ended with status {status}, so that no worker served it in full")
        tokens, answer = length_of(row, "input_tokens", 1), length_of(row, "output_tokens", 0)
        arrival_s = number_of(row, "arrival_s")
        digits = row.get("blocks", "")
        if not isinstance(digits, str) or len(digits) % 16 or not re.fullmatch("[0-9a-f]*", digits):
            raise Misfit("blocks must be 16 hexadecimal digits for each block")
        if len(digits) // 16 > -(-tokens // self.block_size):
            raise Misfit(too_many(len(digits) // 16, tokens, self.block_size))
        session = row.get("session")
        if session is not None and not (isinstance(session, str) and re.fullmatch("[0-9a-f]{16}", session)):
            raise Misfit("session must be 16 hexadecimal digits")
        # Hashes under another salt name other things, even if the numbers are equal.
        mixed = self._salt * 0x9E3779B97F4A7C15 % (1 << 64)
        blocks = [int(digits[i : i + 16], 16) ^ mixed for i in range(0, len(digits), 16)]
        return Record(arrival_s, tokens, answer, blocks, None if session is None else int(session, 16))


_READERS: dict[str, type[Format]] = {
    "mooncake": _Mooncake,
    "bailian": _Bailian,
    "azure": _Azure,
    "record": _RecordLog,
    "weka": Weka,
    "tracelab": TraceLab,
}


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error as error:
        raise Misfit(f"it is not CSV ({error})") from None


def _parsed(text: str, name: str) -> float | int:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise Misfit(f"{name} is {quoted(text)}; it must be a whole number") from None


def recognise(first_line: str) -> str | None:
    """The format of a file by its first line; None when it is none of them."""
    if "ContextTokens" in first_line and "TIMESTAMP" in first_line:
        return "azure"
    try:
        row = json.loads(first_line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    if "vllm_router_record_log" in row:
        return "record"
    if {"block_size", "requests"} <= row.keys():
        return "weka"
    if {"session_id", "input_tokens_total", "timing_events"} <= row.keys():
        return "tracelab"
    if {"chat_id", "hash_ids"} <= row.keys():
        return "bailian"
    if {"timestamp", "hash_ids"} <= row.keys():
        return "mooncake"
    return None


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002, it is what everybody calls it
    strict: bool = False,
    sort: bool = False,
    spread: bool | None = None,
    seed: int = 0,
    limit: int | None = None,
    agents: int | None = None,
    on_problem: Callable[[str], None] | None = None,
) -> Trace:
    """Read recorded traffic.

    Args:
        path: The file; `.gz` and `.zst` are unpacked on the way.
        format: `mooncake`, `bailian`, `azure`, `record`, `weka` or `tracelab`; None recognises it by the
            first line.
        strict: A line that does not fit, or a file that was cut short, raises instead of being skipped.
        sort: Put requests in order of arrival where the file does not; without it a time that goes back
            raises. (A record log is always put in order: its lines are written when requests end.)
        spread: Spread requests that share a time evenly at random until the next tick; None does it where the
            times are plainly a coarse clock's, such as the 3 s of Mooncake's conversation trace.
        seed: Of the spreading.
        limit: Read only so many requests.
        agents: Of sessions of agents: how many are under way at once; the next one begins when one ends. None
            is 40.
        on_problem: Called with a sentence for each line that is skipped.

    Raises:
        TraceError: the file cannot be used; one sentence says why.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise TraceError(f"format is {quoted(format)}; it must be one of {', '.join(FORMATS)}")
    if limit is not None and limit < 1:
        raise TraceError(f"limit is {limit}; at least 1 request is needed")
    reader = _Reading(path, strict, sort, on_problem or (lambda _: None))
    return reader.read(format, spread, seed, limit, agents)


class _Reading:
    """One pass over one file."""

    def __init__(self, path: Path, strict: bool, sort: bool, on_problem: Callable[[str], None]) -> None:
        self._path = path
        self._strict = strict
        self._sort = sort
        self._on_problem = on_problem
        self._columns = _Growing()
        self._skipped = 0
        self._unsorted_at = 0

    def read(
        self, name: str | None, spread: bool | None, seed: int, limit: int | None, agents: int | None
    ) -> Trace:
        format_of_file: Format | None = None
        number = 0
        try:
            for number, line in numbered_lines(self._path):
                if not line.strip():
                    continue
                if format_of_file is None:
                    format_of_file = self._format(name, line)
                    if format_of_file.has_head:
                        self._head(format_of_file, line)
                        continue
                self._line(format_of_file, number, line)
                if limit is not None and self._read(format_of_file) >= limit:
                    break
        except CutShort:
            self._skip(
                f"{self._path} is truncated: its compressed data end in the middle, after line {number}; "
                "copy it again"
            )
        if format_of_file is None or self._read(format_of_file) == 0:
            more = f": all {self._skipped} lines were skipped" if self._skipped else ""
            raise TraceError(f"{self._path} has no requests{more}; a replay needs at least one")
        if isinstance(format_of_file, SessionFormat):
            loop = closed_loop(
                _stem(self._path),
                format_of_file.block_size,
                format_of_file.sessions(),
                checked_agents(agents),
                self._skipped,
            )
            return loop if limit is None else loop.head(limit)
        if agents is not None:
            raise TraceError(
                f"agents is {agents}, and {self._path} has no sessions of agents; leave it out, or name the "
                "format, weka or tracelab"
            )
        return self._trace(format_of_file, spread, seed)

    def _read(self, reader: Format) -> int:
        """The requests so far."""
        return reader.turns if isinstance(reader, SessionFormat) else len(self._columns.arrival_s)

    def _format(self, name: str | None, line: bytes) -> Format:
        name = name or recognise(line.decode("utf-8", "replace"))
        if name is None:
            raise TraceError(
                f"{self._path} has a first line of unknown format; name the format with --format, one of "
                f"{', '.join(FORMATS)}"
                + ("; a JSON object must be one line, as jq -c writes it" if line.strip() == b"{" else "")
            )
        return _READERS[name]()

    def _head(self, reader: Format, line: bytes) -> None:
        try:
            reader.head(line.decode("utf-8"))
        except (Misfit, UnicodeDecodeError) as misfit:
            raise TraceError(f"{self._path}, line 1: {misfit}") from None
        except TraceError as error:
            raise TraceError(f"{self._path}: {error}") from None

    def _line(self, reader: Format, number: int, line: bytes) -> None:
        try:
            record = reader.record(line.decode("utf-8"))
        except TraceError as error:
            raise TraceError(f"{self._path}, line {number}: {error}") from None
        except (Misfit, UnicodeDecodeError) as misfit:
            text = str(misfit) if isinstance(misfit, Misfit) else "it is not UTF-8 text"
            if not line.endswith(b"\n"):
                text = f"the file is truncated: its last line is not complete ({text})"
            self._skip(f"{self._path}, line {number}: {text}")
            return
        if record is None:
            return
        times = self._columns.arrival_s
        if times and record.arrival_s < times[-1] and not reader.times_may_go_back:
            self._unsorted_at = self._unsorted_at or number
            if not self._sort:
                raise TraceError(
                    f"{self._path}, line {number}: the time goes back from {times[-1]:g} s to "
                    f"{record.arrival_s:g} s; sort the file, or use --sort"
                )
        self._columns.add(record)

    def _skip(self, sentence: str) -> None:
        if self._strict:
            raise TraceError(sentence)
        self._skipped += 1
        self._on_problem(sentence)

    def _trace(self, reader: Format, spread: bool | None, seed: int) -> Trace:
        columns = self._columns
        arrival_s = np.array(columns.arrival_s, np.float64)
        tick = tick_of(arrival_s)
        if spread or (spread is None and tick >= SHORTEST_TICK_S):
            arrival_s = arrival_s + np.random.default_rng([seed, 0x5EAD]).uniform(0, tick, len(arrival_s))
        has_tenants = columns.tenant_names.keys() != {NO_TENANT}
        has_sessions = len(columns.session_ids) == len(columns.arrival_s)
        trace = Trace(
            name=_stem(self._path),
            block_size=reader.block_size,
            arrival_s=arrival_s,
            input_tokens=np.array(columns.input_tokens, np.uint32),
            output_tokens=np.array(columns.output_tokens, np.uint32),
            block_ids=np.array(columns.block_ids, np.uint64),
            block_offsets=np.array(columns.block_offsets, np.int64),
            session_ids=np.array(columns.session_ids, np.uint64) if has_sessions else None,
            priority_classes=np.array(columns.classes, np.uint8) if columns.has_classes else None,
            tenants=np.array(columns.tenants, np.uint32) if has_tenants else None,
            tenant_names=tuple(columns.tenant_names) if has_tenants else (),
            skipped=self._skipped,
        )
        order = np.argsort(arrival_s, kind="stable")
        in_order = trace if np.array_equal(order, np.arange(len(order))) else trace.take(order)
        return dataclasses.replace(in_order, arrival_s=in_order.arrival_s - in_order.arrival_s[0])


def _stem(path: Path) -> str:
    name = path.name
    for ending in (".gz", ".zst", ".jsonl", ".json", ".csv", ".log"):
        name = name.removesuffix(ending)
    return name or path.name


def tick_of(arrival_s: NDArray[np.float64]) -> float:
    """The step of the clock that wrote these times, if they are plainly a clock's ticks; else 0."""
    different = np.unique(arrival_s)
    if len(different) < 2 or len(different) * 2 > len(arrival_s):
        return 0.0
    steps = np.diff(different)
    tick = float(np.median(steps))
    # Written times are off by a millisecond now and then, and ticks without a request leave gaps.
    regular = np.abs(steps - tick * np.round(steps / tick)) <= 0.005
    return round(tick, 3) if regular.all() else 0.0
