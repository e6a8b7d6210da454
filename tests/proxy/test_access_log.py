"""The access log of the command: complete when somebody reads it, in nobody's way when nobody does."""

import fcntl
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from tests.fakes.wire import response

ON_FREE_PORTS = ("--host", "127.0.0.1", "--port", "0", "--prometheus-port", "0")


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int, IO[bytes]]]:
    """`vllm-router` as its own process: it, its port and its log. Messages are read away."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm_router.launch_router", *ON_FREE_PORTS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(rb"serves http://127\.0\.0\.1:(\d+)", line):
                break
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        yield process, int(found[1]), process.stdout
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
        process.stderr.close()


def answer(connection, _message):
    connection.send(response(200, b"whole"))


def ask(port: int, count: int) -> None:
    client: Any = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for number in range(count):
        client.request("POST", f"/{number}/" + "x" * 1000, body=b"hello")
        assert client.getresponse().read() == b"whole"
    client.close()


def test_requests_are_answered_and_the_end_is_clean_though_nobody_reads_the_log(harness):
    worker = harness.worker(answer)
    with command("--worker-urls", worker.url, "--policy", "round_robin") as (process, port, stdout):
        room = fcntl.fcntl(stdout, fcntl.F_SETPIPE_SZ, 4096)
        ask(port, 10 + room // 1000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_the_log_of_a_server_that_stopped_is_complete(harness):
    worker = harness.worker(answer)
    arguments = ("--worker-urls", worker.url, "--policy", "round_robin", "--log-format", "json")
    with command(*arguments) as (process, port, stdout):
        ask(port, 20)
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in stdout]
        assert process.wait(30) == 0
    assert [line["path"].split("/")[1] for line in lines] == [str(number) for number in range(20)]
    assert {line["status"] for line in lines} == {200}
