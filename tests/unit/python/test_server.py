"""python/vllm_router/server.py: the command's process from its first line to its exit status."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import types
import weakref
from collections.abc import Iterator

import pytest

from tests.fakes.wire import Wire, eventually, request
from tests.fakes.worker import RefusingPort
from vllm_router.server import _take_calls
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


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_log_has_its_form_from_the_first_line_and_says_where_it_serves(form: str) -> None:
    """Row 45 of the third list: warnings about settings were plain text, and 0.0.0.0 was 127.0.0.1."""
    arguments = [sys.executable, "-m", "vllm_router", "--host=0.0.0.0", "--port=0", "--prometheus-port=0"]
    arguments += ["--spread-starts", "--admin-port=0", "--log-format", form]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if " serves http" in line:
                    break
        finally:
            process.kill()
    messages = [json.loads(line)["message"] for line in lines] if form == "json" else lines
    assert all(form == "json" or re.match(r"[0-9-]{10} [0-9:.]+ [A-Z]+ ", line) for line in lines), lines
    assert any("--spread-starts is deprecated" in message for message in messages)
    assert any("no worker URLs are given" in message for message in messages)
    assert re.search(r"serves http://0\.0\.0\.0:\d+: .*admin endpoints on http://127\.0\.0\.1:", messages[-1])


def test_a_mistake_is_told_with_the_warnings_before_it() -> None:
    arguments = [sys.executable, "-m", "vllm_router", "--spread-starts", "--log-format=json", "--port=70000"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "port is 70000" in done.stderr


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


def test_a_start_without_any_worker_that_answers_is_exit_status_1() -> None:
    with RefusingPort() as refusing:
        flags = ("--worker-urls", refusing.url, "--worker-startup-timeout-secs", "0.5")
        with command(*flags) as (process, _):
            assert process.wait(30) == 1
            assert "no worker passed its health check within 0.5 s" in process.stderr.read()


def test_a_router_is_ready_once_a_worker_has_answered() -> None:
    with RefusingPort() as refusing, SimulatedWorker() as worker:
        with command("--worker-urls", refusing.url) as (_, url):
            assert status(url, "/liveness") == 200
            assert status(url, "/readiness") == 503
        with command("--worker-urls", f"{refusing.url},{worker.url}") as (_, url):
            eventually(lambda: status(url, "/readiness") == 200)


def status(url: str, path: str) -> int:
    host, port = url.removeprefix("http://").split(":")
    wire = Wire(socket.create_connection((host, int(port))))
    wire.send(request("GET", path))
    answer = wire.read_response()
    wire.close()
    return answer.status


class Calls:
    """Calls of a configuration, one after the other; then it is closed."""

    def __init__(self, *calls):
        self.calls, self.finished = list(calls), []

    @property
    def closed(self):
        return not self.calls

    def next(self, _timeout):
        return self.calls.pop(0)

    def finish(self, number, status, body):
        self.finished.append((number, status, json.loads(body)["result"]))


class Failing:
    _admission = None

    def _look_at_admission(self):
        raise RuntimeError("the caller of a reload that was carried out does not learn of this")

    def reload(self, dry_run):
        if dry_run:
            raise ValueError("\udcff")
        return types.SimpleNamespace(ok=True, as_json=lambda: '{"result": "applied"}')


def test_a_reload_that_fails_is_answered_and_the_next_one_is_carried_out():
    calls, failing = Calls((1, True, False), (2, False, False)), Failing()
    _take_calls(calls, weakref.ref(failing), None)
    assert calls.finished == [(1, 500, "failed"), (2, 200, "applied")]
