"""cpp/proxy/exchange/event_stream_reply.h: a response without an end, and all that ends it."""

import json
import re
import socket

import pytest

from tests.fakes.viewer import EVENTS, Viewer
from tests.fakes.wire import eventually, request, response
from vllm_router import _core_testing as testing


@pytest.fixture
def speed():
    former = testing.set_dashboard_speed(1)
    yield testing.set_dashboard_speed
    testing.set_dashboard_speed(former)


@pytest.fixture(autouse=True)
def _fast(speed):
    speed(50)


def viewers(router):
    found = re.search(r"^vllm_router_dashboard_viewers (\S+)$", router.server.metrics_text(), re.MULTILINE)
    return int(float(found[1]))


def test_it_comes_in_chunks_without_a_length(harness):
    viewer = Viewer(harness.client(harness.router(harness.worker())))
    head = viewer.head
    assert head.status == 200
    assert head.get("content-type") == "text/event-stream; charset=utf-8"
    assert head.get("transfer-encoding") == "chunked"
    assert head.get("content-length") is None
    assert head.get("cache-control") == "no-store"
    assert head.get("x-request-id")
    assert [viewer.next()[0], viewer.next()[0]] == ["hello", "fleet"]


def test_a_client_of_http_1_0_reads_until_the_end_of_the_connection(harness):
    router = harness.router(harness.worker())
    client = harness.client(router)
    client.send(f"GET {EVENTS} HTTP/1.0\r\nHost: a\r\n\r\n".encode())
    head = client.read_head()
    assert head.get("transfer-encoding") is None
    assert head.get("connection") == "close"
    assert client.read_until(b"\n\n").startswith(b"event: hello\ndata: {")
    router.shutdown()
    assert client.ending() in ("eof", "reset")


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_leaves_ends_it(harness, how):
    router = harness.router(harness.worker())
    viewer = Viewer(harness.client(router))
    viewer.until("tick")
    assert viewers(router) == 1
    getattr(viewer.client, how)()
    eventually(lambda: viewers(router) == 0, "the viewer is still there")


def test_the_next_request_of_a_client_is_served_when_the_stream_ends_and_not_before(harness):
    """A request behind the stream waits; when the client leaves, both are over."""
    router = harness.router(harness.worker())
    viewer = Viewer(harness.client(router))
    viewer.client.send(request("GET", "/liveness"))
    assert viewer.until("tick")["sentence"] == "The worker serves."
    viewer.client.close()
    eventually(lambda: viewers(router) == 0, "the viewer is still there")


def test_shutdown_ends_it_at_once_though_requests_have_time(harness):
    router = harness.router(harness.worker(), shutdown_grace_period_secs=30)
    viewer = Viewer(harness.client(router))
    viewer.until("tick")
    router.shutdown()
    router.must_end(within=10)
    assert router.server.exchanges_cut == 0
    assert viewer.client.ending() in ("eof", "reset")


def test_shutdown_waits_for_a_request_though_a_viewer_is_there(harness):
    gate = []

    def later(connection, _message):
        gate[0].wait()
        connection.send(response(200, b"{}"))

    worker = harness.worker(later)
    gate.append(worker.gate())
    router = harness.router(worker, shutdown_grace_period_secs=30, admin_port=0)
    viewer = Viewer(harness.client_at(router.server.admin_port))
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=b"{}"))
    worker.wait_for_requests(1)
    router.shutdown()
    viewer.until("tick", lambda tick: tick["facts"]["in_flight"] == 1)
    gate[0].open()
    assert client.read_response().status == 200
    router.must_end(within=10)


def test_a_client_that_does_not_read_loses_ticks_and_is_cut_off_in_the_end(harness, speed):
    speed(2000)
    workers = [harness.worker() for _ in range(12)]
    router = harness.router(*workers, client_write_timeout_secs=2)
    client = harness.client(router, receive_buffer=4096)
    client.send(request("GET", EVENTS))
    client.read_head()

    def skipped():
        text = router.server.metrics_text()
        return float(re.search(r"^vllm_router_dashboard_skipped_total (\S+)$", text, re.MULTILINE)[1])

    eventually(lambda: skipped() > 0, "no tick was skipped")
    eventually(lambda: viewers(router) == 0, "it was never cut off")
    assert client.ending() == "reset"


def test_a_viewer_that_lost_ticks_gets_all_rows_again(harness, speed):
    speed(2000)
    router = harness.router(*[harness.worker() for _ in range(12)], client_write_timeout_secs=30)
    client = harness.client(router, receive_buffer=4096)
    viewer = Viewer(client)
    text = "vllm_router_dashboard_skipped_total 0"
    eventually(lambda: text not in router.server.metrics_text(), "no tick was skipped")
    viewer.until("fleet")
    assert len(viewer.until("fleet")["workers"]) == 12  # the second one


def test_a_silence_is_broken_by_comments(harness):
    viewer = Viewer(harness.client(harness.router(harness.worker())), "?interval=60")
    viewer.until("tick")
    viewer.until("tick")
    assert viewer.comments >= 1


def test_a_reload_of_settings_leaves_it_as_it_is(harness):
    router = harness.router(harness.worker())
    viewer = Viewer(harness.client(router))
    before = viewer.until("tick")["point"][0]
    router.server.reload()
    assert viewer.until("tick", lambda tick: tick["point"][0] > before)


def test_it_is_served_over_tls(harness, tmp_path):
    from tests.fakes.authority import Authority

    authority = Authority(tmp_path)
    files = authority.certify("localhost")
    router = harness.router(harness.worker(), tls_cert_path=str(files.cert), tls_key_path=str(files.key))
    viewer = Viewer(harness.client(router, tls=authority.client()))
    assert viewer.until("tick")["sentence"] == "The worker serves."
    viewer.client.socket.shutdown(socket.SHUT_RDWR)
    eventually(lambda: viewers(router) == 0, "the viewer is still there")


def test_other_requests_are_served_meanwhile(harness):
    router = harness.router(harness.worker(), threads=1)
    viewer = Viewer(harness.client(router))
    viewer.until("tick")
    assert json.loads(harness.client(router).ask("GET", "/admin/status").body)["sentence"]
