"""WatchedFile: a file that is looked at again and again, and read when it has changed.

    file = WatchedFile("workers.yaml", what="file of workers", must="a file that lists workers")
    while True:
        found = file.look()             # bytes: new content; else a Look
        time.sleep(1)

One that has changed is read when it was the same for two looks in a row, so that none is read while it is
being written; only the first look reads at once. Links are followed, so an atomic rename and the links of a
Kubernetes ConfigMap count as changes. One thread.
"""

from __future__ import annotations

import enum
import os
import stat
from typing import NamedTuple

from vllm_router.settings.yaml import MAX_YAML_BYTES, too_long


class Look(enum.Enum):
    """What a look has found that read nothing new."""

    SAME = "the file is the one that was read last"
    UNSETTLED = "it has changed since the last look"
    TORN = "it has changed while it was read"


class WatchedFileError(Exception):
    """The file cannot be read. `kind` is `unreadable`, or `invalid` of one that is too long."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def text_of(content: bytes, source: str) -> str:
    """The text of a file's content, without a byte order mark.

    Raises:
        ValueError: it is not UTF-8; the message has `source` and the line.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"{source}, line {line}: this is not UTF-8 text; save the file as UTF-8") from None


class _Identity(NamedTuple):
    """What tells a file that has changed from one that has not."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int  # of a file that was rewritten in place, with the time of its content set back


class WatchedFile:
    """A file of text; see the head of this module.

    Args:
        path: The file. It need not be there yet.
        what: What it is, in the message about one that is too long.
        must: What it must be, in the message about a directory.
    """

    def __init__(self, path: str, what: str, must: str) -> None:
        self.path = path
        self._what = what
        self._must = must
        self._looked = False
        self._seen: _Identity | None = None  # at the last look
        self._read: _Identity | None = None  # of the file that was read last

    @property
    def was_read(self) -> bool:
        """Whether any look has read it."""
        return self._read is not None

    def look(self) -> bytes | Look:
        """What is in it, if that is new.

        Raises:
            WatchedFileError: it cannot be read.
        """
        first, self._looked = not self._looked, True
        seen, self._seen = self._seen, None
        now = self._seen = self._identity()
        if now == self._read:
            return Look.SAME
        if not first and now != seen:
            return Look.UNSETTLED
        content = self._content(now)
        if content is None:
            return Look.TORN
        self._read = now
        return content

    def _identity(self) -> _Identity:
        try:
            status = os.stat(self.path)  # noqa: PTH116, as fstat() below
        except OSError as error:
            raise self._unreadable(error) from None
        return self._identity_of(status)

    def _identity_of(self, status: os.stat_result) -> _Identity:
        if not stat.S_ISREG(status.st_mode):
            kind = "directory" if stat.S_ISDIR(status.st_mode) else "pipe, a socket or a device"
            raise WatchedFileError("unreadable", f"{self.path} is a {kind}; it must be {self._must}")
        if status.st_size > MAX_YAML_BYTES:
            raise WatchedFileError("invalid", str(too_long(self.path, self._what)))
        return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def _content(self, expected: _Identity) -> bytes | None:
        """What is in the file; None if it is not the one that is expected after it was read."""
        try:
            # Since the look a pipe may have taken its place, and to open one would block.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(MAX_YAML_BYTES + 1) if self._is(expected, descriptor) else b""
                unchanged = self._is(expected, descriptor) and len(content) == expected.size
        except OSError as error:
            raise self._unreadable(error) from None
        return content if unchanged else None

    def _is(self, expected: _Identity, descriptor: int) -> bool:
        return self._identity_of(os.fstat(descriptor)) == expected

    def _unreadable(self, error: OSError) -> WatchedFileError:
        reason = error.strerror or type(error).__name__
        return WatchedFileError("unreadable", f"{self.path} cannot be read: {reason}")
