"""A Redis for tests: a real one on a port of its own, and a fake that does as it is told.

with RedisServer(tmp_path) as redis:            skips the test where there is no redis-server, but not in CI
    redis.call("SET", "a", "1")

fake = FakeRedis()                              logs clients in, then keeps what they send
fake.replies["GET"] = b"$1\\r\\na\\r\\n"
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.wire import PATIENCE, eventually
from tests.models.resp import command_of, read_reply


def cut(connection: socket.socket) -> None:
    """Both directions at once; the client may see a reset."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def hang_up(connection: socket.socket, _: Any = None) -> None:
    """A reply, too: the end of the connection. What still comes is read, else the end would be a reset."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


class RedisServer:
    """A process of redis-server without persistence; with TLS if `options` have --tls-cert-file."""

    def __init__(self, folder: Path, *options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            if os.environ.get("CI"):
                pytest.fail("redis-server is missing; scripts/install_deps.sh ci installs it")
            pytest.skip("redis-server is missing")
        self._command = [
            program,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            str(folder),
        ]
        self._command += options
        self._port_option = "--tls-port" if "--tls-cert-file" in options else "--port"
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self.port = 0
        for _ in range(20):  # another program may take the port before Redis does
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            if self.start():
                return
        raise AssertionError("redis-server did not start")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> bool:
        """Whether it serves."""
        self._process = subprocess.Popen(
            [*self._command, "--port", "0", self._port_option, str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        process = self._process

        def settled() -> bool:
            if process.poll() is not None:
                return True
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            return False

        eventually(settled)
        return process.poll() is None

    def kill(self) -> None:
        if self._socket is not None:
            self._replies.close()
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def pause(self) -> None:
        """It does nothing until resume()."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def call(self, *words: str | bytes) -> Any:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
            self._replies = self._socket.makefile("rb")
        self._socket.sendall(command_of(words))
        return read_reply(self._replies)

    def __enter__(self) -> RedisServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class FakeRedis:
    """Replies to each command what `replies` has for its name, else +OK, and keeps all commands.

    An reply of None holds the reply back; a callable gets the connection and the words.
    """

    def __init__(self) -> None:
        self.replies: dict[str, Any] = {"PING": b"+PONG\r\n"}
        self.commands: list[list[str]] = []
        self.connections: list[socket.socket] = []
        self.writer: Any = None  # the address of the connection of the last ZREM
        self._last: dict[str, socket.socket] = {}  # the connection of the last command of each name
        self._changed = threading.Condition()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def wait_for(self, name: str, count: int = 1) -> list[list[str]]:
        """So many commands of this name."""

        def found() -> list[list[str]]:
            return [words for words in self.commands if words[0] == name]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, PATIENCE), (
                f"no {name}: {self.commands}"
            )
            return found()

    def connection_of(self, name: str) -> socket.socket:
        """The one of the last command of this name."""
        return self._last[name]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(PATIENCE)  # no connection comes any more
        self._listening.close()
        for connection in self.connections:
            cut(connection)
        for thread in self._threads:
            thread.join(PATIENCE)

    def __enter__(self) -> FakeRedis:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections.append(connection)
                self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError, EOFError), connection:
            for words in self._requests(connection):
                with self._changed:
                    self.commands.append(words)
                    if words[0] == "ZREM":
                        self.writer = connection.getpeername()
                    self._last[words[0]] = connection
                    self._changed.notify_all()
                reply = self.replies.get(words[0], b"+OK\r\n")
                if callable(reply):
                    reply = reply(connection, words)
                if reply is not None:
                    connection.sendall(reply)

    @staticmethod
    def _requests(connection: socket.socket) -> Iterator[list[str]]:
        with connection.makefile("rb") as stream:
            while True:
                yield [word.decode(errors="replace") for word in read_reply(stream)]
