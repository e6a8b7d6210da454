"""A new process relieves the old one, and nobody is turned away."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.fakes.harness import QUIET
from tests.fakes.wire import eventually, request
from vllm_router import Router, _core


@contextlib.contextmanager
def running(port: int, worker: str, *flags: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A router of its own process, and its port."""
    command = [
        sys.executable,
        "-m",
        "vllm_router.launch_router",
        "--worker-urls",
        worker,
        "--port",
        str(port),
    ]
    # A policy that asks workers nothing, so that what they are asked comes from clients.
    quiet = ["--prometheus-port", "0", "--health-check-interval-secs", "0", "--policy", "round_robin"]
    quiet += ["--log-level", "info", "--model-refresh-secs", "0"]
    with subprocess.Popen(
        [*command, *quiet, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            seen = []
            for line in process.stderr:
                seen.append(line)
                if " serves http" in line:
                    yield process, int(line.split(" serves http://127.0.0.1:")[1].split(":")[0])
                    return
            raise AssertionError("".join(seen))
        finally:
            process.kill()


class Clients:
    """Threads that come, ask once, and go, over and over."""

    def __init__(self, port: int, count: int = 4) -> None:
        self.port = port
        self.answers = 0
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        asked = request("GET", "/x", ("Connection", "close"))
        while not self._stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=30) as client:
                    client.sendall(asked)
                    answer = b"".join(iter(lambda: client.recv(65536), b""))
                if not answer.startswith(b"HTTP/1.1 200"):
                    self.failures.append(f"answered {answer[:100]!r}")
            except OSError as error:
                self.failures.append(repr(error))
            self.answers += 1

    def wait_for(self, more: int) -> None:
        until = self.answers + more
        eventually(lambda: self.answers >= until, "the clients are stuck")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def takes_part(port: int) -> bool:
    """Whether another that joins the port gets its share of new connections."""
    with socket.socket() as third, contextlib.ExitStack() as connections:
        third.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        third.bind(("127.0.0.1", port))
        third.listen(100)
        third.settimeout(0)
        for _ in range(60):
            connections.enter_context(socket.create_connection(("127.0.0.1", port)))
        try:
            third.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_new_router_takes_over_without_a_refused_connection(harness, threads):
    worker = harness.worker()
    flags = ("--reuse-port", "--threads", threads, "--request-timeout-secs", "60")
    with running(0, worker.url, *flags) as (old, port):
        clients = Clients(port)
        clients.wait_for(50)
        with running(port, worker.url, *flags) as (new, same_port):
            assert same_port == port
            old.send_signal(signal.SIGTERM)
            assert old.wait(60) == 0
            clients.wait_for(50)
            clients.stop()
            assert clients.failures == []
            assert takes_part(port), "the kernel gives new connections to one socket only"
            new.send_signal(signal.SIGTERM)
            assert new.wait(60) == 0


def test_a_new_router_that_is_stopped_gives_the_port_back(harness):
    """It was started by mistake, or is not good: the old one goes on."""
    worker = harness.worker()
    flags = ("--reuse-port", "--threads", "2")
    with running(0, worker.url, *flags) as (old, port):
        clients = Clients(port)
        for _ in range(2):
            with running(port, worker.url, *flags) as (new, _):
                clients.wait_for(50)
                new.send_signal(signal.SIGTERM)
                assert new.wait(60) == 0
        clients.wait_for(50)
        clients.stop()
        # What the kernel gave to a socket of the newcomer in the instant before that closed is lost with it.
        assert len(clients.failures) <= 2
        assert takes_part(port), "the kernel gives new connections to one socket only"
        old.send_signal(signal.SIGTERM)
        assert old.wait(60) == 0


def test_the_ports_of_metrics_and_admins_are_shared_as_well(harness):
    worker = harness.worker()
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [str(each.getsockname()[1]) for each in (one, two)]
    flags = ("--reuse-port", "--prometheus-port", ports[0], "--admin-port", ports[1])
    with running(0, worker.url, *flags) as (old, port), running(port, worker.url, *flags) as (new, _):
        for router in (old, new):
            router.send_signal(signal.SIGTERM)
            assert router.wait(60) == 0


def test_a_start_by_mistake_does_not_join(harness):
    worker = harness.worker()
    with running(0, worker.url, "--reuse-port") as (_, port), pytest.raises(OSError, match="in use"):
        _core.Server(Router(policy="round_robin"), **{**QUIET, "port": port})


def test_a_second_signal_ends_the_process_at_once(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    with running(0, worker.url) as (router, port), socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(request())
        worker.wait_for_requests(1)
        router.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            router.wait(0.3)
        router.send_signal(signal.SIGINT)
        assert router.wait(30) == -signal.SIGINT  # 130 to a shell


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 3), (signal.SIGINT, 3)])
def test_the_exit_status_says_that_requests_were_cut(harness, number, status):
    worker = harness.worker(lambda connection, _: connection.ending())
    with running(0, worker.url, "--shutdown-grace-period-secs", "0.2") as (router, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(request())
            worker.wait_for_requests(1)
            router.send_signal(number)
            assert client.recv(100).startswith(b"HTTP/1.1 503")
        assert router.wait(30) == status


def test_a_hangup_reads_keys_again_where_there_are_some_and_ends_the_process_where_not(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one")
    worker = harness.worker()
    with running(0, worker.url, "--client-api-key-file", str(keys)) as (router, _):
        keys.write_text("two\nthree\n")
        router.send_signal(signal.SIGHUP)
        assert router.stderr is not None
        assert any("reloaded, 2 keys (1 before)" in line for line in router.stderr)
        router.send_signal(signal.SIGTERM)
        assert router.wait(60) == 0
    with running(0, worker.url) as (router, _):
        router.send_signal(signal.SIGHUP)
        assert router.wait(60) == -signal.SIGHUP
