"""FileSource: workers listed in a YAML or JSON file, which is read again when it has changed.

    workers:                          endpoints:                  as llm-d writes it
      - http://gpu-0:8000               - address: 10.0.0.1
      - url: http://gpu-1:8000            port: 8000
        weight: 2                         labels: {zone: a}
        labels: {zone: b}

`workers_of_text()` is the pure part. A file that cannot be read, or is not right, changes nothing: the error
names the file, the line and the remedy, and holds until the file has changed again.

A file that is written in place is read when two looks saw the same. If its last line has no end, the rest of
the line may be still to come, so two more looks must see the same; only a text in braces shows by itself that
it is whole. Programs that write the file should write another one and rename it.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from vllm_router._core import worker_key
from vllm_router._messages import did_you_mean, show
from vllm_router._secrets import described, shown_urls
from vllm_router._version import __version__
from vllm_router._watched_file import Look, WatchedFile, WatchedFileError, text_of
from vllm_router.discovery.source import MAX_WORKERS, Listing, Source, SourceError, WorkerSpec, keys_of
from vllm_router.settings.kinds import NotYet, Unfit
from vllm_router.settings.names import name_only
from vllm_router.settings.urls import worker_url
from vllm_router.settings.yaml import MAX_YAML_BYTES, composed_yaml, too_long

__all__ = ["FileSource", "workers_of_text"]

_SPEC_NAMES = tuple(field.name for field in dataclasses.fields(WorkerSpec))
_LATER_NAMES = ("role",)
_ENDPOINT_NAMES = ("address", "port", "labels", "name", "namespace")
_HOW = "write workers: [http://gpu-0:8000, http://gpu-1:8000]"
_WHAT = "file of workers"
_UNFINISHED_LOOKS = 2  # that have to find a file unchanged whose last line has no end


class FileSource(Source):
    """Workers listed in a file.

    The file is looked at again and again. One that has changed is read when it was the same for two looks in
    a row, so that no file is read while it is being written; only the first look reads at once. One that does
    not end in a newline has to stay the same for two looks more, unless it is JSON (or YAML in braces). Links
    are followed, so an atomic rename and the links of a Kubernetes ConfigMap count as changes.

    Args:
        path: The file. It need not be there yet.
        poll_secs: The time between two looks, 0.01 to 3600 seconds.

    Raises:
        TypeError: `path` is no path.
        ValueError: `path` is empty or has a NUL character, or `poll_secs` is out of range.
    """

    name = "file"

    def __init__(self, path: str | os.PathLike[str], poll_secs: float = 1.0) -> None:
        self._path = os.fspath(path)
        if not isinstance(self._path, str):
            raise TypeError(f"path is {described(path)}; it must be a str or a pathlib.Path")
        if not self._path.strip() or "\0" in self._path:
            raise ValueError(f"path is {show(self._path)}; it must be the path of a file")
        if isinstance(poll_secs, bool) or not 0.01 <= poll_secs <= 3600:
            raise ValueError(
                f"poll_secs is {show(poll_secs)}; it must be a number of seconds between 0.01 and 3600"
            )
        self._poll_secs = float(poll_secs)
        self._file = WatchedFile(self._path, _WHAT, f"a file that lists workers: {_HOW} in it")
        self._read_error: SourceError | None = None  # what was wrong with the file that was read last
        self._was_read = False
        self._unfinished: bytes | None = None  # what was read last, if it may not be all
        self._looks_left = 0  # that have to find it unchanged
        self._last_error: SourceError | None = None  # of the last look

    def look(self) -> Listing:
        """The workers that the file lists; see `Source.look()`."""
        try:
            workers = self._changed_workers()
        except SourceError as error:
            self._last_error = error
            raise
        self._last_error = None
        return Listing(workers, again_secs=self._poll_secs)

    def _changed_workers(self) -> list[WorkerSpec] | None:
        """What the file lists now; None: what it did before."""
        try:
            found = self._file.look()
        except WatchedFileError as error:
            raise self._failure(error.kind, str(error)) from None
        if found is Look.SAME and self._unfinished is not None:
            self._looks_left -= 1
            if self._looks_left > 0:
                self._raise_again(self._last_error)
                return None
            found, self._unfinished = self._unfinished, None
            return self._workers_of(found)
        if found is Look.SAME:
            self._raise_again(self._read_error)
            return None
        if isinstance(found, Look):
            if found is Look.TORN and not self._file.was_read and self._last_error is None:
                raise self._failure(
                    "unreadable", f"{self._path} changed while it was read; it is read once it is unchanged"
                )
            self._raise_again(self._last_error)
            return None
        first = not self._was_read
        self._was_read = True
        self._unfinished = None if _is_whole(found) else found
        if self._unfinished is None:
            return self._workers_of(found)
        self._looks_left = _UNFINISHED_LOOKS
        if first and self._last_error is None:
            raise self._failure(
                "unreadable",
                f"{self._path} does not end in a newline, so it may be still being written; it is read if "
                "the next two looks find it unchanged. End it with a newline",
            )
        self._raise_again(self._last_error)
        return None

    def _workers_of(self, content: bytes) -> list[WorkerSpec]:
        self._read_error = None
        try:
            return workers_of_text(text_of(content, self._path), self._path)
        except ValueError as error:
            self._read_error = self._failure("invalid", str(error))
            raise self._read_error from None

    def _raise_again(self, error: SourceError | None) -> None:
        if error is not None:  # anew, since the traceback of one exception would grow each time
            raise self._failure(error.kind, error.message)

    def _failure(self, kind: str, message: str) -> SourceError:
        return SourceError(kind, message, again_secs=self._poll_secs)


def _is_whole(content: bytes) -> bool:
    """Whether nothing more of the file is to come, as far as its end shows."""
    if content.endswith(b"\n") or not content:
        return True
    # A text in braces that is cut off lacks the last of them, and cannot be read.
    return content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def workers_of_text(text: str, source: str) -> list[WorkerSpec]:
    """The workers that a YAML or JSON text lists, in its order.

    Args:
        text: A mapping with `workers`, a list of URLs or of mappings with the names of `WorkerSpec`; or with
            `endpoints`, a list of `{address, port, labels}`.
        source: The file's name, for messages. One that ends in `.json` must be JSON.

    Raises:
        ValueError: the text is neither YAML nor JSON, or does not list workers in this form, or has a worker
            twice, or more than 4,096 of them. The message has the line, and no secret of a URL.
    """
    root = _composed(text, source)
    where = f"{source}, line {root.line}"
    if root.value is None:
        raise ValueError(f"{source} is empty; {_HOW} in it, or workers: [] for no workers")
    if isinstance(root.value, list):
        raise ValueError(f"{where}: workers stand under a name, not in a bare list; {_HOW}")
    if not isinstance(root.value, dict):
        raise ValueError(f"{where}: this is {described(root.value)}, not a list of workers; {_HOW}")
    members = _members(root, ("workers", "endpoints"), source, "")
    if len(members) != 1:
        given = " and ".join(members) or "neither workers nor endpoints"
        remedy = "keep one of them" if members else _HOW
        raise ValueError(f"{where}: the file has {given}; {remedy}")
    ((name, rows),) = members.items()
    if not isinstance(rows.value, list):
        raise ValueError(
            f"{source}, line {rows.line}: {name} is {described(rows.value)}; it must be a list: "
            + (_HOW if name == "workers" else "write endpoints: [{address: 10.0.0.1, port: 8000}]")
        )
    spec_of = _worker if name == "workers" else _endpoint
    specs: list[WorkerSpec] = []
    lines: dict[str, int] = {}
    for number, row in enumerate(_items(rows)):
        spec, line = spec_of(row, f"{name}[{number}]", source)
        for key in keys_of(spec):
            if key in lines:
                raise ValueError(
                    f"{source}, line {line}: {shown_urls(spec.url)} is in line {lines[key]} already; keep "
                    "one of them"
                )
            lines[key] = line
        if len(lines) > MAX_WORKERS:
            raise ValueError(
                f"{source}, line {line}: {shown_urls(spec.url)} is beyond the {MAX_WORKERS} workers, each "
                "rank counted, that a fleet has room for; remove some, or run a second router"
            )
        specs.append(spec)
    return specs


class _Place(NamedTuple):
    """A value, and where it stands."""

    node: Any
    value: Any

    @property
    def line(self) -> int:
        return 1 if self.node is None else int(self.node.start_mark.line) + 1


def _composed(text: str, source: str) -> _Place:
    """The text as one place. JSON is read as JSON: YAML takes other numbers and other blanks."""
    if len(text) > MAX_YAML_BYTES:
        raise too_long(source, _WHAT)
    if not source.lower().endswith(".json") and text.lstrip()[:1] not in ("{", "["):
        return _Place(*composed_yaml(text, source, _WHAT, lambda node: _check_unique(node, source)))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if not source.lower().endswith(".json"):  # it may be YAML in braces
            return _Place(*composed_yaml(text, source, _WHAT, lambda node: _check_unique(node, source)))
        place = (
            f", line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        )
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply, or a number"
        raise ValueError(f"{source}{place} is not JSON: {reason}") from None
    # In JSON a tab stands between values only, and what is not ASCII in texts only, where YAML takes some of
    # it for line breaks. The nodes are for line numbers, so these may be written otherwise.
    plain = re.sub(r"[^\n\r\x20-\x7e]", _escaped, text)
    try:
        node, _ = composed_yaml(plain, source, _WHAT, lambda node: _check_unique(node, source))
    except ValueError as error:
        if "is not YAML" not in str(error):
            raise
        node = None  # JSON that YAML cannot read, such as with a name of 2,000 characters
    return _Place(node, value)


def _escaped(match: re.Match[str]) -> str:
    if match[0] == "\t":
        return " "
    return "\\u007f" if match[0] == "\x7f" else json.dumps(match[0])[1:-1]


def _check_unique(node: Any, source: str) -> None:
    """That no mapping has a name twice, of which YAML and JSON let the last one win."""
    stack, known = [node], set()
    while stack:
        node = stack.pop()
        if not isinstance(node.value, list) or id(node) in known:  # a scalar, or an alias
            continue
        known.add(id(node))
        lines: dict[str, int] = {}
        for item in node.value:
            if not isinstance(item, tuple):
                stack.append(item)
                continue
            key, value = item
            stack.append(value)
            if not isinstance(key.value, str):
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                raise ValueError(
                    f"{source}, line {line}: {name_only(key.value)} is in line {lines[key.value]} already; "
                    "keep one of them"
                )
            lines[key.value] = line


def _items(place: _Place) -> Iterator[_Place]:
    nodes = [None] * len(place.value) if place.node is None else place.node.value
    return map(_Place, nodes, place.value)


def _members(place: _Place, names: Sequence[str], source: str, what: str) -> dict[str, _Place]:
    """The values of a mapping by name, `-` being `_`; those that are null are left out."""
    nodes = {} if place.node is None else {key.value: (key, value) for key, value in place.node.value}
    found: dict[str, _Place] = {}
    for given, value in place.value.items():
        key, node = nodes.get(given, (place.node, place.node))
        where = f"{source}, line {_Place(key, None).line}: {what}"
        name = str(given).replace("-", "_")
        if name in _LATER_NAMES and "url" in names:
            raise ValueError(f"{where}{name} is not implemented in vllm-router {__version__} yet; remove it")
        if name not in names:
            shown = name_only(str(given))
            hint = did_you_mean(shown, names, f"; it has {', '.join(names)}")
            raise ValueError(f"{where}{show(shown)} is not a known name{hint}")
        if name in found:
            raise ValueError(f"{where}{name} is given in two spellings; keep one of them")
        if value is not None:
            found[name] = _Place(node, value)
    return found


def _worker(row: _Place, what: str, source: str) -> tuple[WorkerSpec, int]:
    """A row of `workers`, and the line of its URL."""
    where = f"{source}, line {row.line}: {what}"
    if isinstance(row.value, str):
        return WorkerSpec(_checked_url(row.value, where)), row.line
    if not isinstance(row.value, dict):
        raise ValueError(
            f"{where} is {described(row.value)}; it must be a URL such as http://gpu-0:8000, or a mapping "
            "with url"
        )
    members = _members(row, _SPEC_NAMES, source, f"{what}.")
    url = members.get("url")
    if url is None:
        raise ValueError(f"{where} has no url; write url: http://gpu-0:8000")
    if not isinstance(url.value, str):
        raise ValueError(
            f"{source}, line {url.line}: {what}.url is {described(url.value)}; it must be a URL such as "
            "http://gpu-0:8000"
        )
    _checked_url(url.value, f"{source}, line {url.line}: {what}.url")
    return _spec(
        {name: member.value for name, member in members.items()}, members, row, what, source
    ), url.line


def _endpoint(row: _Place, what: str, source: str) -> tuple[WorkerSpec, int]:
    """A row of `endpoints`, and its line."""
    where = f"{source}, line {row.line}: {what}"
    if not isinstance(row.value, dict):
        raise ValueError(f"{where} is {described(row.value)}; write {{address: 10.0.0.1, port: 8000}}")
    members = _members(row, _ENDPOINT_NAMES, source, f"{what}.")
    for name in ("address", "port"):
        if name not in members:
            raise ValueError(f"{where} has no {name}; write {{address: 10.0.0.1, port: 8000}}")
    address, port = members["address"].value, members["port"].value
    if not isinstance(address, str) or not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", address):
        raise ValueError(
            f"{source}, line {members['address'].line}: {what}.address is {described(address)}; it must be "
            "an IP address or the name of a host"
        )
    number = int(port) if isinstance(port, str) and re.fullmatch("[0-9]{1,5}", port) else port
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 65535:
        raise ValueError(
            f"{source}, line {members['port'].line}: {what}.port is {show(port)}; it must be a number "
            "between 1 and 65535"
        )
    url = f"http://[{address}]:{number}" if _is_ipv6(address) else f"http://{address}:{number}"
    _checked_url(url, f"{source}, line {members['address'].line}: {what}")
    values: dict[str, Any] = {"url": url}
    labels = members["labels"].value if "labels" in members else {}
    if isinstance(labels, dict):
        about = {name: members[name].value for name in ("name", "namespace") if name in members}
        labels = {**about, **labels}
    return _spec({**values, "labels": labels}, members, row, what, source), row.line


def _spec(
    values: dict[str, Any], members: dict[str, _Place], row: _Place, what: str, source: str
) -> WorkerSpec:
    """A WorkerSpec. What it says of a value begins with its name, whose line is said as well."""
    try:
        return WorkerSpec(**values)
    except (TypeError, ValueError) as error:
        line = members.get(str(error).split(" ", 1)[0], row).line
        raise ValueError(f"{source}, line {line}: {what}.{error}") from None


def _checked_url(url: str, where: str) -> str:
    try:
        # Names are for programs that connect to workers themselves; the router decides.
        if not url.lower().startswith(("ray://", "name://")):
            worker_url(url)
    except NotYet as unfit:
        raise ValueError(f"{where} is {shown_urls(url)}; {unfit}") from None
    except Unfit as unfit:
        raise ValueError(f"{where} is {shown_urls(url) or 'an empty text'}; write {unfit}") from None
    try:
        worker_key(url)
    except ValueError as misfit:
        raise ValueError(f"{where} is {shown_urls(url)}, which {misfit}") from None
    return url


def _is_ipv6(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).version == 6
    except ValueError:
        return False
