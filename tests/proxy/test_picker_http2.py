"""The picker's port by another implementation of HTTP/2's client side: h2load and nghttp of nghttp2."""

import os
import re
import shutil
import subprocess

import pytest

from tests.fakes.wire import PATIENCE

HEALTH = "/grpc.health.v1.Health/Check"
EMPTY = b"\0\0\0\0\0"  # a message of no bytes, in gRPC's frame: the health of all services


@pytest.fixture
def run(harness, tmp_path):
    """Runs one of the tools at a router's picker, and returns what it prints."""
    message = tmp_path / "message"
    message.write_bytes(EMPTY)
    port = harness.router(harness.worker(), epp_port=0, threads=2).server.epp_port

    def run(tool, *options, path=HEALTH):
        if shutil.which(tool) is None:
            if os.environ.get("CI"):
                pytest.fail(f"{tool} is missing; scripts/install_deps.sh ci installs it")
            pytest.skip(f"{tool} is missing")
        command = [tool, "-H", "content-type: application/grpc", "-H", "te: trailers", "-d", str(message)]
        url = f"http://127.0.0.1:{port}{path}"
        done = subprocess.run([*command, *options, url], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize(
    ("requests", "connections", "at_once"), [(2000, 4, 32), (200, 100, 1), (2000, 1, 100)]
)
def test_all_requests_of_many_connections_and_streams_are_served(run, requests, connections, at_once):
    told = run("h2load", "-n", str(requests), "-c", str(connections), "-m", str(at_once))
    assert re.search(rf"\b{requests} succeeded, 0 failed, 0 errored, 0 timeout", told), told
    assert re.search(rf"status codes: {requests} 2xx, 0 3xx, 0 4xx, 0 5xx", told), told


def test_small_windows_of_the_client_are_kept(run):
    """2 to the power of 4 bytes for a stream and for the connection: less than a response."""
    told = run("h2load", "-n", "200", "-c", "2", "-m", "10", "-w", "4", "-W", "4")
    assert re.search(r"\b200 succeeded, 0 failed", told), told


def test_the_end_of_a_call_is_in_trailers(run):
    told = run("nghttp", "-v", "-n")
    assert "content-type: application/grpc" in told
    assert "grpc-status: 0" in told


def test_a_method_that_is_not_served_is_unimplemented(run):
    assert "grpc-status: 12" in run("nghttp", "-v", "-n", path="/a.B/C")
