"""Workers that do what a test tells them to, byte by byte.

    worker = FakeWorker(answer=lambda connection, request: connection.send(response(200, b"hello")))
    worker.url, worker.requests, worker.connections[0].received

`answer` is called for each request on each connection; a `script`, given instead, has the whole connection to
itself from its first byte. Both run on a thread per connection, so they may wait: for a `worker.gate()` that
the test opens, or for the peer to leave (`connection.ending()`). What goes wrong there is raised at the end.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable

from tests.fakes.wire import PATIENCE, EndedEarlyError, Message, Wire, eventually, response


class Gate:
    """Shut until the test opens it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._waiting = threading.Semaphore(0)

    def open(self) -> None:
        self._event.set()

    def wait(self) -> None:
        self._waiting.release()
        assert self._event.wait(PATIENCE), "the test never opened the gate"

    def wait_for_someone(self) -> None:
        """Until somebody stands (or stood) before the gate."""
        assert self._waiting.acquire(timeout=PATIENCE), "nobody came to the gate"


class Connection(Wire):
    """The worker's end of a connection."""

    def __init__(self, sock: socket.socket, worker: FakeWorker) -> None:
        super().__init__(sock)
        self.worker = worker
        self.requests: list[Message] = []
        self.ended: str | None = None  # how the router ended it: "eof" or "reset"
        self.over = threading.Event()  # the thread has finished with it

    def read_request(self) -> Message:
        message = super().read_request()
        self.worker._arrived(self, message)
        return message

    def read_request_head(self) -> Message:
        """Leaves the body unread."""
        message = self.read_head()
        self.worker._arrived(self, message)
        return message

    def ending(self) -> str:
        self.ended = super().ending()
        return self.ended

    def end(self) -> None:
        """Closes; over TLS, after having said so."""
        if isinstance(self.socket, ssl.SSLSocket):
            with contextlib.suppress(OSError):
                self.socket.unwrap()
        self.close()

    def wait_ended(self) -> str:
        """For the test: waits until the router has ended the connection."""
        assert self.over.wait(PATIENCE), "the worker's side of the connection never ended"
        assert self.ended is not None, "the worker ended it itself"
        return self.ended


Answer = Callable[[Connection, Message], None]
Script = Callable[[Connection], None]


def say_hello(connection: Connection, message: Message) -> None:
    connection.send(response(200, b"" if message.method == "HEAD" else b"hello"))


class FakeWorker:
    """Listens on a free port of its own until `stop()`."""

    def __init__(
        self,
        answer: Answer = say_hello,
        *,
        script: Script | None = None,
        host: str = "127.0.0.1",
        receive_buffer: int | None = None,
        send_buffer: int | None = None,
        path: str = "",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.answer = answer
        self.script = script or self._answer_each
        self.connections: list[Connection] = []
        self.requests: list[Message] = []
        self.errors: list[BaseException] = []
        self._changed = threading.Condition()
        self._gates: list[Gate] = []
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self._tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer is not None:  # inherited by accepted sockets
            self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if send_buffer is not None:
            self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind((host, port))
        self._listening.listen(1024)
        self.port = self._listening.getsockname()[1]
        self.authority = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.authority}{path}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def gate(self) -> Gate:
        gate = Gate()
        self._gates.append(gate)
        return gate

    @property
    def posts(self) -> list[Message]:
        """What clients sent; the router itself asks for health, models and metrics."""
        return [message for message in self.requests if message.method == "POST"]

    def wait_for_requests(self, count: int = 1) -> list[Message]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, PATIENCE), (
                f"{len(self.requests)} requests came, not {count}"
            )
            return list(self.requests)

    def wait_for_connections(self, count: int = 1) -> list[Connection]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.connections) >= count, PATIENCE), (
                f"{len(self.connections)} connections came, not {count}"
            )
            return list(self.connections)

    def forget(self, connection: Connection) -> None:
        """For tests about memory: keeps nothing of a connection that is over."""
        with self._changed:
            self.connections.remove(connection)
            self._threads.remove(threading.current_thread())

    def wait_until_stuck(self) -> None:
        """Until an answer's `send()` has made no progress for a while: everything on the way is full."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < 0.3:
            now = sum(connection.sent for connection in self.connections)
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(0.01)

    def stop_listening(self) -> None:
        """From now on, connections are refused; those that stand go on."""
        try:
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes accept()
        except OSError:
            return
        self._accepting.join(PATIENCE)
        self._listening.close()

    def die(self, connection: Connection) -> None:
        """As a process that crashes while it serves `connection`, on whose thread this is called."""
        self.stop_listening()
        for other in list(self.connections):
            if other is not connection:
                with contextlib.suppress(OSError):
                    other.socket.shutdown(socket.SHUT_RDWR)
        connection.reset()

    def stop(self) -> None:
        """Ends everything; raises what went wrong in an answer or script."""
        self._stopped = True
        self.stop_listening()
        for gate in self._gates:
            gate.open()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        for connection in self.connections:
            connection.close()
        for error in self.errors:
            raise error

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            connection = Connection(accepted, self)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._changed:
                self.connections.append(connection)
                self._threads.append(thread)
                self._changed.notify_all()
            thread.start()

    def _serve(self, connection: Connection) -> None:
        try:
            if self._tls is not None:
                connection.socket = self._tls.wrap_socket(connection.socket, server_side=True)
            self.script(connection)
        except EndedEarlyError:
            connection.ended = "eof"
        except (ConnectionError, ssl.SSLError):
            connection.ended = "reset"
        except BaseException as error:
            # A descriptor that the script closed itself, or anything after stop(), is no news.
            if not self._stopped and connection.socket.fileno() >= 0:
                self.errors.append(error)
        finally:
            connection.close()
            connection.over.set()

    def _answer_each(self, connection: Connection) -> None:
        while True:
            request = connection.read_request()
            self.answer(connection, request)

    def _arrived(self, connection: Connection, message: Message) -> None:
        connection.requests.append(message)
        with self._changed:
            self.requests.append(message)
            self._changed.notify_all()


class SlowPort:
    """A port whose queue is full until `let_in()`, so that connecting takes until the kernel knocks again."""

    def __init__(self) -> None:
        self._silent = SilentPort()
        self.port, self.url = self._silent.port, self._silent.url
        self._wires: list[Wire] = []

    def let_in(self, count: int) -> None:
        """Accepts until `count` connections have come that are not of the queue's filling."""
        fillers = {knocking.getsockname() for knocking in self._silent.waiting}
        self._silent.listening.settimeout(PATIENCE)
        while len(self._wires) < count:
            accepted, peer = self._silent.listening.accept()
            if peer in fillers:
                accepted.close()
            else:
                self._wires.append(Wire(accepted))

    def read_request(self) -> Message:
        return self._wires[0].read_request()

    def ending(self) -> str:
        return self._wires[0].ending()

    def stop(self) -> None:
        for wire in self._wires:
            wire.close()
        self._silent.stop()


class RefusingPort:
    """A port on which nobody listens, and nobody else will either."""

    def __init__(self) -> None:
        self._bound = socket.socket()
        self._bound.bind(("127.0.0.1", 0))
        self.port = self._bound.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._bound.close()

    def __enter__(self) -> RefusingPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class SilentPort:
    """A port that lets nobody in: its queue is full, so the kernel drops what knocks."""

    def __init__(self) -> None:
        self.listening = socket.socket()
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen(0)
        self.port = self.listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.waiting: list[socket.socket] = []

        def full() -> bool:
            knocking = socket.socket()
            self.waiting.append(knocking)
            knocking.settimeout(0.2)
            try:
                knocking.connect(("127.0.0.1", self.port))
            except TimeoutError:
                return True
            return False

        eventually(full, "the queue never filled")

    def stop(self) -> None:
        for knocking in self.waiting:
            knocking.close()
        self.listening.close()
