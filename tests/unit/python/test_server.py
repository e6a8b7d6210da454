"""python/vllm_router/server.py: the command's process from its first line to its exit status."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.fakes.wire import Wire, eventually, request
from vllm_router.testing import SimulatedWorker


@contextlib.contextmanager
def command(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A router and its URL."""
    arguments = [sys.executable, "-m", "vllm_router.launch_router", "--port=0", "--prometheus-port=0", *flags]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if " serves http://" in line)
            yield process, line.split(" serves ")[1].split(": ")[0]
        finally:
            process.kill()


def ask(worker: SimulatedWorker, url: str) -> Wire:
    """A request that has reached the worker."""
    host, port = url.removeprefix("http://").split(":")
    wire = Wire(socket.create_connection((host, int(port))))
    wire.send(request("POST", "/v1/completions", body=b"{}"))
    eventually(lambda: worker.stats()["requests"] == 1)
    return wire


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_reads_the_first_line_may_send_a_signal_at_once(number: signal.Signals) -> None:
    for _ in range(3):
        with command() as (process, _):
            process.send_signal(number)
            assert process.wait(30) == 0
            assert f"{number.name}: stopping; requests in flight have 180 s" in process.stderr.read()


def test_a_second_signal_ends_the_process_at_once() -> None:
    with SimulatedWorker(hang=True) as worker, command("--worker-urls", worker.url) as (process, url):
        asking = ask(worker, url)
        process.send_signal(signal.SIGTERM)
        assert "SIGTERM" in process.stderr.readline()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
        assert asking.read_to_end() == b""
        asking.close()


def test_requests_that_the_grace_period_cuts_are_exit_status_3() -> None:
    flags = ("--shutdown-grace-period-secs", "0.1")
    with SimulatedWorker(hang=True) as worker, command("--worker-urls", worker.url, *flags) as (process, url):
        asking = ask(worker, url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 3
        answer = asking.read_response()
        assert answer.status == 503
        assert b"shutting_down" in answer.body
        asking.close()
