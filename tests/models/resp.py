"""The slow twin of cpp/redis/resp_reader.h: RESP2, a line at a time, over all that has come so far.

Also what fakes need: one reply from a stream, and one command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, BinaryIO

MAX_LINE_BYTES = 64 * 1024
MAX_ELEMENTS = 16 * 1024
MAX_DEPTH = 3


class Status(bytes):
    """A status, such as OK."""


class Error(bytes):
    """An error of Redis."""


class WrongError(Exception):
    """The bytes are not RESP2, or beyond a limit."""


class TooShortError(Exception):
    """More bytes have to come."""


class RespReader:
    def __init__(self, max_reply_bytes: int = 1 << 20) -> None:
        self.max_reply_bytes = max_reply_bytes
        self.bytes = b""
        self.failed = False

    def feed(self, data: bytes) -> tuple[list[Any], bool]:
        """The replies that are complete now, and whether all is well."""
        if self.failed:
            return [], False
        self.bytes += data
        replies: list[Any] = []
        while self.bytes:
            self.at = 0
            self.elements = 0
            try:
                replies.append(self._value(0))
            except TooShortError:
                break
            except WrongError:
                self.failed = True
                return replies, False
            self.bytes = self.bytes[self.at :]
        return replies, True

    def _within(self, end: int) -> None:
        if end > self.max_reply_bytes:
            raise WrongError

    def _line(self) -> bytes:
        end = self.bytes.find(b"\r\n", self.at)
        # A line is as long as its bytes before LF; of one without an end, all that came.
        length = (len(self.bytes) if end < 0 else end + 1) - self.at
        if self.bytes[self.at : self.at + 1] not in (b"+", b"-", b":", b"$", b"*", b""):
            self._within(self.at + 1)
            raise WrongError
        # Whichever limit is passed first ends it, and both end it alike.
        if length > MAX_LINE_BYTES:
            raise WrongError
        self._within(self.at + length if end < 0 else end + 2)
        if end < 0:
            raise TooShortError
        line = self.bytes[self.at : end]
        self.at = end + 2
        return line

    def _value(self, depth: int) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return Status(rest)
        if kind == b"-":
            return Error(rest)
        if not re.fullmatch(rb"0|-?[1-9][0-9]*", rest) or not -(2**63) <= int(rest) < 2**63:
            raise WrongError
        number = int(rest)
        if kind == b":":
            return number
        if number < -1:
            raise WrongError
        if number == -1:
            return None
        if kind == b"$":
            return self._text(number)
        if number == 0:
            return []
        self.elements += number
        if self.elements > MAX_ELEMENTS or depth == MAX_DEPTH:
            raise WrongError
        return [self._value(depth + 1) for _ in range(number)]

    def _text(self, length: int) -> bytes:
        self._within(self.at + length + 2)
        text = self.bytes[self.at : self.at + length]
        ending = self.bytes[self.at + length : self.at + length + 2]
        if not b"\r\n".startswith(ending):
            raise WrongError
        if len(ending) < 2:
            raise TooShortError
        self.at += length + 2
        return text


def read_reply(stream: BinaryIO) -> Any:
    """One reply of a stream that is RESP2; EOFError at its end."""
    line = stream.readline()
    if not line:
        raise EOFError
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return Status(rest)
    if kind == b"-":
        return Error(rest)
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
    if kind != b"*":
        raise ValueError("it is no reply")
    return [read_reply(stream) for _ in range(int(rest))]


def command_of(words: Sequence[str | bytes]) -> bytes:
    """A command as Redis takes it."""
    texts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in texts)
