"""A TCP relay between router and worker, or Redis, that a test can pause, cut, garble and slice.

relay = harness.relay(worker)
router = harness.router(relay)
relay.pause()                      # nothing passes to the router any more, and nobody is told
relay.cut("reset")                 # every connection that stands
relay.strand()                     # connections that stand stay open and pass nothing; new ones pass all
relay.target = ("127.0.0.1", port) # of new connections
relay.garble = lambda data: …      # what the worker says, changed on the way
relay.slice = 1                    # so many bytes per write towards the router
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from tests.fakes.wire import PATIENCE


class Relay:
    def __init__(self, worker: Any) -> None:
        self.target = ("127.0.0.1", worker.port)
        self.garble: Callable[[bytes], bytes] | None = None
        self.slice = 0
        self.passed = 0  # bytes towards the router
        self._resetting = False
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._stranded: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen(1024)
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def pause(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    def cut(self, how: str = "reset") -> None:
        """Ends every connection: by a reset, or ("close") by a proper end."""
        self._resetting = how == "reset"
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    if how == "reset":
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        sock.shutdown(socket.SHUT_RD)
                    else:
                        sock.shutdown(socket.SHUT_RDWR)

    def strand(self) -> None:
        """As if the peer of every connection that stands had vanished."""
        with self._lock:
            self._stranded.update(self._sockets)

    def half_close(self) -> None:
        """Towards the router only: it may still send."""
        with self._lock:
            for sock in self._sockets[::2]:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)

    def stop(self) -> None:
        self.resume()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join(PATIENCE)
        self._listening.close()
        self.cut("close")
        for thread in self._threads:
            thread.join(PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.socket()
            try:
                far.connect(self.target)
            except OSError:
                near.close()
                far.close()
                continue
            left = [2]  # ways that are still open
            with self._lock:
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    thread = threading.Thread(
                        target=self._pass_on, args=(source, sink, source is far, left), daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, to_router: bool, left: list[int]) -> None:
        try:
            while data := source.recv(65536):
                if to_router:
                    self._open.wait(PATIENCE)
                if source in self._stranded:
                    continue
                if to_router:
                    data = self.garble(data) if self.garble else data
                    self.passed += len(data)
                step = self.slice if to_router and self.slice else len(data) or 1
                for at in range(0, len(data), step):
                    sink.sendall(data[at : at + step])
            if not self._resetting:
                with contextlib.suppress(OSError):
                    sink.shutdown(socket.SHUT_WR)
        except OSError:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)
        with self._lock:
            left[0] -= 1
            if left[0] == 0:
                source.close()
                sink.close()
