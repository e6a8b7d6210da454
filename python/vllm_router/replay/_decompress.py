"""Lines of a file that may be compressed: .gz by the standard library, .zst by the extra `zstandard`."""

from __future__ import annotations

import gzip
import importlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from vllm_router.replay.trace import TraceError

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class CutShort(Exception):  # noqa: N818, it never leaves the package
    """The compressed data ended before their end."""


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(1, first line), ...; lines keep their end, so that the last one shows whether it had one.

    Raises:
        CutShort: after the last line that could be read.
        TraceError: the file cannot be read.
    """
    number = 0
    try:
        with path.open("rb") as file:
            source = _opened(path, file)
            for number, line in enumerate(source, 1):
                yield number, line
    except EOFError:
        raise CutShort from None
    except IsADirectoryError:
        raise TraceError(f"{path} is a directory; name a file in it") from None
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist; check the path") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path} is damaged after line {number}: {error}; copy it again") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from None


def _opened(path: Path, file: io.BufferedReader) -> BinaryIO:
    magic = file.peek(4)[:4]  # a pipe cannot go back
    # By content, not by name: a file that was renamed is still what it is.
    if magic.startswith(GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if magic == ZSTD_MAGIC:
        return _zstd(path, file)
    return file


def _zstd(path: Path, file: BinaryIO) -> BinaryIO:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        raise TraceError(
            f"{path} is compressed with zstd, which needs the package zstandard: "
            "pip install 'vllm-router[replay]', or unpack the file with: zstd -d"
        ) from None
    return cast(BinaryIO, io.BufferedReader(_ZstdPieces(path, file, zstandard)))


class _ZstdPieces(io.RawIOBase):
    """zstd as a raw stream. zstandard's own reader takes the end of a cut file for the end of its data."""

    def __init__(self, path: Path, file: BinaryIO, zstandard: object) -> None:
        self._path = path
        self._file = file
        self._zstandard = zstandard
        self._decoder = self._fresh()
        self._piece = memoryview(b"")
        self._in_frame = False

    def _fresh(self) -> object:
        return self._zstandard.ZstdDecompressor().decompressobj()  # type: ignore[attr-defined]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._piece:
            read = self._file.read(1 << 16)
            if not read:
                if self._in_frame:
                    raise EOFError
                return 0
            self._piece = memoryview(self._decode(read))
        count = min(len(buffer), len(self._piece))
        buffer[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def _decode(self, read: bytes) -> bytes:
        pieces = []
        while read:
            try:
                pieces.append(self._decoder.decompress(read))  # type: ignore[attr-defined]
            except self._zstandard.ZstdError as error:  # type: ignore[attr-defined]
                raise TraceError(f"{self._path} is damaged: {error}; copy it again") from None
            self._in_frame = not self._decoder.eof  # type: ignore[attr-defined]
            if self._in_frame:
                break
            read = self._decoder.unused_data  # type: ignore[attr-defined]
            self._decoder = self._fresh()
        return b"".join(pieces)
