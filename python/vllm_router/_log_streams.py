"""Standard streams of a process that serves: no thread waits for who reads them.

    own_the_process()                     # the command, before all else
    with through_the_log(1, 2):           # sys.stdout and sys.stderr
        server.run()

A write to a pipe that is not read blocks, and Python's streams hold a lock meanwhile, which other threads and
the end of the process need. So what Python itself writes (`logging`, `warnings`, tracebacks, `print`) goes
through the queues of the core's log, in order with its lines, and is dropped and counted there as they are.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, TextIO

_MOST_CHARACTERS = 64 * 1024  # of a line that has not ended yet
_NAMES = {1: "stdout", 2: "stderr"}


class LogStream(io.TextIOBase):
    """A text stream that hands whole lines to the core; see the head of this module.

    Args:
        descriptor: 1 or 2.
        former: The stream in whose place it stands, used where there is no core.
    """

    def __init__(self, descriptor: int, former: TextIO) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._former = former
        self._lock = threading.RLock()  # a signal's handler may write in the middle of a write
        self._rest = ""  # a line that has not ended

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As of the stream in whose place it stands."""
        return self._former.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """Bytes that cannot be encoded are shown."""
        return "backslashreplace"

    def fileno(self) -> int:
        """The descriptor of the process."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether that is a terminal."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Takes the text; its last line is written when it has ended, or by `flush()`."""
        with self._lock:
            text_so_far = self._rest + text
            lines, newline, self._rest = text_so_far.rpartition("\n")
            if len(self._rest) > _MOST_CHARACTERS:
                lines, newline, self._rest = text_so_far, "", ""
            self._hand_over(lines + newline)
        return len(text)

    def flush(self) -> None:
        """Hands over a line that has not ended."""
        with self._lock:
            rest, self._rest = self._rest, ""
            self._hand_over(rest)

    def _hand_over(self, lines: str) -> None:
        if not lines:
            return
        encoding = self.encoding or "utf-8"  # such as ASCII, which has no é
        try:
            core: Any = import_module("vllm_router._core")
        except ImportError:  # which is what the text is about, probably
            self._former.write(lines)
            self._former.flush()
        else:
            core.log_text(self._descriptor, lines.encode(encoding, "backslashreplace").decode(encoding))


def configure_log(options: Mapping[str, Any]) -> None:
    """The log of the core, by options of the server."""
    core: Any = import_module("vllm_router._core")
    core.configure_log(options["log_level"], options["log_format"], options["log_dir"] or "")


class CoreHandler(logging.Handler):
    """Writes to the log of the core: in its format, and to its files."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line."""
        core: Any = import_module("vllm_router._core")
        level = "error" if record.levelno >= logging.ERROR else "warn"
        core.log(level if record.levelno >= logging.WARNING else "info", record.getMessage())


@contextlib.contextmanager
def through_the_log(*descriptors: int) -> Iterator[None]:
    """While it lasts, these streams of Python write through the log, unless the program has replaced them."""
    former = {}
    for descriptor in descriptors:
        name = _NAMES[descriptor]
        stream = getattr(sys, name)
        if stream is not None and stream is getattr(sys, f"__{name}__"):
            former[name] = stream
            stream.flush()
            setattr(sys, name, LogStream(descriptor, stream))
    try:
        yield
    finally:
        for name, stream in former.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)


def own_the_process() -> None:
    """What holds from the start of a process that will serve.

    SIGUSR1, which log rotation may send at any time, does not end it. Descriptors 0 to 2 are open, so that no
    connection gets one of them, and then the lines of the log.
    """
    if threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(descriptor, True)
