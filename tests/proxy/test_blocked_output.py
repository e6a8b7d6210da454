"""Row 1: standard output and standard error are pipes that are not read, and the router serves."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.fakes.full_pipe import FullPipe
from tests.fakes.wire import PATIENCE, eventually, request, response
from vllm_router import _core_testing as testing

ON_FREE_PORTS = ("--host=127.0.0.1", "--port=0", "--prometheus-port=0")
COMMAND = (sys.executable, "-m", "vllm_router.launch_router", *ON_FREE_PORTS)
INFERENCE = "/v1/completions"


class Router:
    """The command, whose log of a day is the one place where it can be heard."""

    def __init__(self, folder, command, **streams):
        self.folder = folder
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **streams)

    def log(self):
        return "".join(path.read_text() for path in self.folder.glob("vllm-router.*"))

    def heard(self, pattern):
        def is_heard():
            assert self.process.poll() is None, self.log()
            return re.search(pattern, self.log()) is not None

        eventually(is_heard, pattern)
        return re.search(pattern, self.log())

    def port(self):
        return int(self.heard(r" serves http://127\.0\.0\.1:(\d+)")[1])


@contextlib.contextmanager
def running(folder, *flags, command=COMMAND, **streams):
    router = Router(folder, [*command, "--log-dir", str(folder), *flags], **streams)
    try:
        yield router
    finally:
        router.process.kill()
        router.process.wait()


@pytest.fixture
def pipe():
    with FullPipe() as pipe:
        yield pipe


def test_requests_reloads_and_the_end_do_not_wait_for_a_reader(harness, tmp_path, pipe):
    """Row 1: from before the start, which has warnings, with messages and access lines on each request."""
    breaking = harness.worker(lambda connection, _: connection.send(response(500, b"no")))
    serving = harness.worker(lambda connection, _: connection.send(response(200, b"yes")))
    config = tmp_path / "router.yaml"
    config.write_text(f"worker_urls: [{breaking.url}, {serving.url}]\nmax_payload_size: 1000\n")
    flags = ["--config", str(config), "--policy", "round_robin", "--cache-threshold", "0.4"]
    flags += ["--log-level", "debug", "--cb-failure-threshold", "1", "--cb-timeout-duration-secs", "1"]
    flags += ["--health-check-interval-secs", "1"]
    folder = tmp_path / "logs"
    with running(folder, *flags, stdout=pipe.write_end, stderr=pipe.write_end) as router:
        port = router.port()
        client = harness.client_at(port)
        for number in range(100):
            headers = ("X-Request-Id", f"{number}-" + "r" * 500)
            answer = client.ask("POST", INFERENCE, headers, body=b"{}")
            assert (answer.status, answer.body) == (200, b"yes")
            assert harness.client_at(port).ask("GET", "/liveness").status == 200
        router.heard(r"WARNING .*circuit breaker")
        config.write_text(config.read_text().replace("1000", "2000"))
        answer = client.ask("POST", "/admin/reload")
        assert json.loads(answer.body)["result"] == "applied"
        router.process.send_signal(signal.SIGHUP)
        eventually(lambda: router.log().count("POST /v1/completions") == 100)
        client.close()
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(PATIENCE) == 0
        assert " INFO SIGTERM: stopping; " in router.log()
    pipe.drain_in_background()
    assert "SIGTERM" not in pipe.text()


def test_a_second_signal_ends_it_at_once(harness, tmp_path, pipe):
    worker = harness.worker(lambda connection, _: connection.ending())
    flags = ["--worker-urls", worker.url, "--policy", "round_robin"]
    with running(tmp_path / "logs", *flags, stdout=pipe.write_end, stderr=pipe.write_end) as router:
        client = harness.client_at(router.port())
        client.send(request("POST", INFERENCE, body=b"{}"))
        worker.wait_for_requests(1)
        router.process.send_signal(signal.SIGINT)
        router.heard("SIGINT: stopping")
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(PATIENCE) == -signal.SIGTERM
        client.ending()


def test_a_stuck_record_log_keeps_neither_the_start_nor_the_end(harness, tmp_path):
    """Row 1: its path is a pipe that is full, as a file system that hangs."""
    path = tmp_path / "record"
    os.mkfifo(path)
    read, write = os.open(path, os.O_RDONLY | os.O_NONBLOCK), os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    with FullPipe(read, write):
        worker = harness.worker(lambda connection, _: connection.send(response(200, b"yes")))
        flags = ["--worker-urls", worker.url, "--policy", "round_robin", "--record-log", str(path)]
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with running(tmp_path / "logs", *flags, **streams) as router:
            client = harness.client_at(router.port())
            assert client.ask("POST", INFERENCE, body=b"{}").status == 200
            client.close()
            router.process.send_signal(signal.SIGTERM)
            assert router.process.wait(PATIENCE) == 0


def test_descriptors_that_are_closed_at_the_start_are_no_connections(harness, tmp_path):
    """Row 1: else the log would be written into one."""
    worker = harness.worker(lambda connection, _: connection.send(response(200, b"yes")))
    shell = ("/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND)
    flags = ["--worker-urls", worker.url, "--policy", "round_robin"]
    with running(tmp_path / "logs", *flags, command=shell) as router:
        client = harness.client_at(router.port())
        assert client.ask("POST", INFERENCE, body=b"{}").body == b"yes"
        open_files = [Path(f"/proc/{router.process.pid}/fd/{number}").readlink() for number in range(3)]
        assert open_files == [Path(os.devnull)] * 3
        client.close()
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(PATIENCE) == 0


def test_a_mistake_in_the_command_line_ends_it_though_the_sentence_cannot_be_written(pipe):
    process = subprocess.Popen([*COMMAND, "--no-such-flag"], stdout=pipe.write_end, stderr=pipe.write_end)
    assert process.wait(PATIENCE) == 2


def test_lines_that_are_lost_are_metrics(harness, written_to):
    """Row 1: and the page is served while lines are lost."""
    router = harness.router(harness.worker())
    name = 'vllm_router_log_lines_dropped_total{destination="%s"} %d\n'
    kept = os.dup(1)
    told = written_to(2)
    with FullPipe() as pipe:
        os.dup2(pipe.write_end, 1)
        before = testing.log_dropped(testing.LogDestination.STDOUT)
        for _ in range(10):  # twice what a queue holds
            if testing.log_dropped(testing.LogDestination.STDOUT) == before:
                testing.log_access("GET / 200\n" * 100_000)
        text = router.server.metrics_text()
        assert name % ("stdout", before + 100_000) in text
        assert f"vllm_router_access_log_dropped_total {before + 100_000}\n" in text
        assert harness.client(router).ask().status == 200
        pipe.drain_in_background()
        assert testing.flush_log()
        os.dup2(kept, 1)
        os.close(kept)
    eventually(lambda: " 100000 lines of the access log were dropped" in told())


def test_an_embedded_server_and_python_s_own_threads_go_on(harness, written_to):
    """Row 1: a thread of Python that logs holds the GIL, and a write must not keep it."""
    router = harness.router(harness.worker())
    written_to(2)
    kept = os.dup(2)
    with FullPipe() as pipe:
        os.dup2(pipe.write_end, 2)
        thread = threading.Thread(
            target=lambda: [testing.log(testing.LogLevel.WARNING, "w" * 1000) for _ in range(100)]
        )
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert harness.client(router).ask("GET", "/liveness").status == 200
        router.shutdown()
        router.must_end()
        pipe.drain_in_background()
        assert testing.flush_log()
        os.dup2(kept, 2)
        os.close(kept)
