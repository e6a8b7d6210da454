"""Ports and how many may come in: what is refused at start, and what happens at the limits."""

import re
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from tests.fakes.harness import QUIET
from tests.fakes.wire import EndedEarlyError, eventually, request
from vllm_router import Router, _core


def start(**options):
    return _core.Server(Router(policy="round_robin"), **{**QUIET, **options})


def message_of(**options) -> str:
    try:
        start(**options)
    except OSError as error:
        return str(error)
    raise AssertionError("it started")


def test_a_port_in_use_is_an_error_that_says_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = message_of(port=port)
    assert f"127.0.0.1:{port}" in message
    assert "in use" in message
    assert "choose another port" in message
    start(port=port)  # free again


@pytest.mark.parametrize("threads", [1, 3])
def test_a_port_of_another_router_is_in_use_as_well(threads):
    """Although its own threads share the port among themselves."""
    first = start(threads=threads)
    assert "in use" in message_of(port=first.port, threads=threads)
    with socket.create_connection(("127.0.0.1", first.port)) as client:
        client.sendall(request("GET", "/liveness"))
        assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_a_port_can_be_used_again_at_once(harness):
    router = harness.router(harness.worker())
    client = harness.client(router)
    client.ask("GET", "/x", ("Connection", "close"))  # the router's end goes to TIME_WAIT
    client.must_be_closed()
    router.shutdown()
    router.must_end()
    port = router.port
    del router.server
    router.server = None
    again = start(port=port)
    assert again.port == port


def test_a_metrics_port_in_use_is_an_error_and_the_other_port_is_given_back():
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        message = message_of(port=port, prometheus_port=taken)
    assert str(taken) in message
    start(port=port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_a_host_that_is_not_this_machine_s_is_an_error(host):
    message = message_of(host=host)
    assert host in message


def test_the_server_listens_on_ipv6():
    server = start(host="::1")
    with socket.create_connection(("::1", server.port)) as client:
        client.sendall(request("GET", "/liveness"))
        assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_connections_are_spread_over_the_threads(harness):
    worker = harness.worker()
    router = harness.router(worker, threads=4)
    clients = [harness.client(router) for _ in range(64)]
    for client in clients:
        assert client.ask().status == 200
    # Each thread has connections of its own to the worker, and all of these rest.
    assert 2 <= len(worker.connections) <= 4


# ---- limits


def test_connections_over_the_limit_are_closed_and_room_is_made_again(harness):
    router = harness.router(harness.worker(), max_connections=3)
    clients = [harness.client(router) for _ in range(3)]
    for client in clients:
        client.send(request("POST", "/x", body=b"ab")[:-1])  # at work: tests/proxy/test_idle_connections.py
        client.wait_until_read()
    surplus = harness.client(router)
    assert surplus.ending() in ("eof", "reset")
    for client in clients:
        client.send(b"b")
        assert client.read_response().status == 200
    clients[0].close()

    def let_in():
        client = harness.client(router)
        try:
            return client.ask().status == 200
        except (ConnectionError, EndedEarlyError):
            return False

    eventually(let_in)


def test_without_descriptors_the_server_lives_on():
    """Some clients are turned away, those inside are served, and later there is room again."""
    script = """
        import resource, socket
        from tests.fakes.harness import QUIET
        from tests.fakes.wire import request
        from vllm_router import Router, _core

        clients = [socket.socket() for _ in range(60)]
        server = _core.Server(Router(policy="round_robin"), **QUIET)
        used = max(client.fileno() for client in clients) + 16
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
        for client in clients:
            client.settimeout(30)
            client.connect(("127.0.0.1", server.port))
        answers = []
        for client in clients:
            try:
                client.sendall(request("GET", "/liveness", ("Connection", "close")))
                answers.append(client.recv(1000))
            except ConnectionError:
                answers.append(b"")
            client.close()
        served = sum(answer.startswith(b"HTTP/1.1 200") for answer in answers)
        assert served > 5, served
        with socket.create_connection(("127.0.0.1", server.port), 30) as late:
            late.settimeout(30)
            late.sendall(request("GET", "/liveness"))
            assert late.recv(1000).startswith(b"HTTP/1.1 200")
        server.shutdown()
        assert server.wait(10)
        print("turned away", answers.count(b""))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    turned_away = int(re.search("turned away ([0-9]+)", done.stdout)[1])
    told = re.findall("out of file descriptors: ([0-9]+) new connections? w", done.stderr)
    assert sum(map(int, told)) == turned_away > 1
    # At once, at the end, and once in ten seconds between.
    assert len(told) <= 2 + (time.monotonic() - began) / 10
