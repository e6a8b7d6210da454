"""A pipe that is full and that is not read, as of a log shipper that hangs, until it is drained.

with FullPipe() as pipe:
    subprocess.Popen(command, stdout=pipe.write_end, stderr=pipe.write_end)
    pipe.drain_in_background()      # from now on it is read
    pipe.text()                     # what came after the filling
"""

from __future__ import annotations

import fcntl
import os
import select
import threading
from types import TracebackType

from tests.fakes.wire import PATIENCE, eventually

FILLING = b"f"


class FullPipe:
    def __init__(self, read_end: int = -1, write_end: int = -1) -> None:
        if read_end < 0:
            read_end, write_end = os.pipe()
        self.read_end, self.write_end = read_end, write_end
        fcntl.fcntl(self.write_end, fcntl.F_SETPIPE_SZ, 4096)
        # Of a description of its own, so that the pipe's other writers still block.
        own = os.open(f"/proc/self/fd/{self.write_end}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            while True:
                os.write(own, FILLING)
        except BlockingIOError:
            pass
        finally:
            os.close(own)
        self._read = bytearray()
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._stop, self._stopped = os.pipe()

    def drain_in_background(self) -> None:
        """Reads from now on, in a thread."""
        if self._reader is None:
            os.set_blocking(self.read_end, True)
            self._reader = threading.Thread(target=self._drain)
            self._reader.start()

    def _drain(self) -> None:
        while True:
            ready, _, _ = select.select([self.read_end, self._stop], [], [])
            if self.read_end not in ready:
                return
            with self._lock:
                piece = os.read(self.read_end, 1 << 16)
                self._read += piece
            if not piece:
                return

    def text(self) -> str:
        """What was written after the filling, and before this call."""
        eventually(lambda: not select.select([self.read_end], [], [], 0)[0], "the pipe is not read")
        with self._lock:
            return bytes(self._read).lstrip(FILLING).decode(errors="replace")

    def wait_for(self, words: str) -> None:
        """Until these have been read."""
        eventually(lambda: words in self.text(), f"{words!r} was not written")

    def close(self) -> None:
        """Both ends."""
        os.close(self._stopped)
        if self._reader is not None:
            self._reader.join(PATIENCE)
        for descriptor in (self._stop, self.read_end, self.write_end):
            os.close(descriptor)

    def __enter__(self) -> FullPipe:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
