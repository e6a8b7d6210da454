"""Simulated workers as processes that start within milliseconds, for churn.py.

    forker = WorkerForker(log)
    worker = forker.start("127.0.1.7", 8000)     has a port already, or raises OSError
    worker.kill()                                SIGKILL; returns when the process is gone
    worker.stop()                                SIGTERM, the same

One process loads the package and forks; it has a single thread. All of them end with the process that made
the forker, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

STOP_SECS = 10.0
FAST: dict[str, Any] = {"model": "sim", "engine": "instant", "step_ms": 0.3}
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """This process is killed when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# In the process that forks


def _serve(host: str, port: int, pipe: socket.socket) -> None:
    from vllm_router.testing import SimulatedWorker

    try:
        worker = SimulatedWorker(host=host, port=port, **FAST)
    except OSError as error:
        pipe.sendall(json.dumps({"error": str(error)}).encode())
        return
    pipe.sendall(json.dumps({"port": worker.port}).encode())
    signal.sigwait({signal.SIGTERM})
    worker.stop()


def fork_workers(descriptor: int) -> None:
    """Fork a worker for each request on a socket, until that is closed."""
    die_with_parent()
    import vllm_router.testing  # noqa: F401, before the first fork

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(fileno=descriptor) as requests:
        while request := requests.recv(4096):
            host, port = json.loads(request)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
            if pid == 0:
                die_with_parent()
                requests.close()
                ours.close()
                _serve(host, port, theirs)
                os._exit(0)
            theirs.close()
            with ours:
                answer = json.loads(ours.recv(4096) or b'{"error": "it ended at once"}')
            requests.sendall(json.dumps(answer | {"pid": pid}).encode())


# In the process that uses them


class WorkerProcess:
    """A worker that is being served."""

    def __init__(self, pid: int, port: int) -> None:
        self.port = port
        self._process = os.pidfd_open(pid)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, number)
        ended, _, _ = select.select([self._process], [], [], STOP_SECS)
        os.close(self._process)
        if not ended:
            raise RuntimeError(f"a worker did not end within {STOP_SECS:g} s of {number.name}")


class WorkerForker:
    """The process that forks workers. Ends, with all of them, with the `with` block."""

    def __init__(self, log: Path) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        code = (
            f"from benchmarks.end_to_end.churn_workers import fork_workers; fork_workers({theirs.fileno()})"
        )
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdout=sink, stderr=sink
            )
        theirs.close()

    def start(self, host: str, port: int) -> WorkerProcess:
        """A worker that listens there; port 0 is any free one.

        Raises:
            OSError: it cannot listen.
        """
        with self._lock:
            self._requests.sendall(json.dumps([host, port]).encode())
            answer = json.loads(self._requests.recv(4096) or b'{"error": "no process to fork from"}')
        if "error" in answer:
            raise OSError(answer["error"])
        return WorkerProcess(answer["pid"], answer["port"])

    def __enter__(self) -> WorkerForker:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.close()
        self._process.kill()  # and its workers with it
        self._process.wait()
