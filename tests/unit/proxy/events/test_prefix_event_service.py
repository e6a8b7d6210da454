"""cpp/proxy/events/prefix_event_service.h: streams of events about prefixes, kept open whatever happens."""

import json
import re
import socket

import pytest

from tests.fakes.sse_kv_server import (
    HEAD,
    PATH,
    PREFIX,
    SseKvServer,
    backends,
    event,
    open_router,
    prefix,
    source_of,
    stats,
    wait_for_index,
)
from tests.fakes.wire import eventually, response


@pytest.fixture
def server():
    return SseKvServer()


@pytest.fixture
def worker(harness, server):
    return harness.worker(server)


def log_of(router, capfd):
    """All of it, once the router has ended: what is written while it is read may be lost."""
    router.shutdown()
    router.must_end()
    return capfd.readouterr().err


def test_a_source_is_asked_as_a_stream_with_the_workers_key(harness, server, worker):
    router = open_router(harness, worker, api_key="secret")
    server.wait_connected()
    (request,) = server.requests
    assert (request.method, request.target) == ("GET", PATH)
    assert request.get("accept") == "text/event-stream"
    assert request.get("authorization") == "Bearer secret"
    assert request.get("last-event-id") is None
    eventually(lambda: backends(harness, router)[0]["connection"]["connected"])


def test_events_reach_the_table(harness, server, worker):
    router = open_router(harness, worker, routing={"kv_storage_offloading": "evictions"})
    server.wait_connected()
    server.send(event("created", PREFIX, 2048), event("created", prefix(1)))
    wait_for_index(harness, router, prefix_count=2, entry_count=2, received=2, dropped=0, index_created=2)
    server.send(event("evicted", PREFIX), event("purged", prefix(1)))
    wait_for_index(harness, router, entry_count=1, index_evicted=2)
    server.send(event("purged"))
    wait_for_index(harness, router, entry_count=0, index_evicted=3)


@pytest.mark.parametrize("size", [1, 7, 50])
def test_events_may_come_in_pieces(harness, server, worker, size):
    router = open_router(harness, worker)
    stream = server.wait_connected()
    data = b": hello\r\n\r\n" + event("created", PREFIX, 16).replace(b"\n", b"\r\n")
    stream.send_in_pieces(data, size)
    wait_for_index(harness, router, entry_count=1, received=1)


def test_what_cannot_be_used_is_counted(harness, server, worker):
    router = open_router(harness, worker)
    server.wait_connected()
    server.send(
        event("moved", PREFIX),
        event("created"),
        event("created", "12"),
        b"data: x\n\n",
        event("created", PREFIX),
    )
    wait_for_index(harness, router, received=5, dropped=4, index_created=1, entry_count=1)


def test_a_stream_that_ends_is_opened_again_and_told_the_last_id(harness, server, worker):
    router = open_router(harness, worker)
    server.wait_connected()
    server.send(b"id: 41\n" + event("created", PREFIX))
    wait_for_index(harness, router, entry_count=1)
    server.drop()
    server.wait_connected(2)
    assert server.requests[1].get("last-event-id") == "41"
    server.send(event("created", prefix(1)))
    wait_for_index(harness, router, entry_count=2, reconnect_count=1)


def test_a_worker_that_has_no_such_stream_is_left_alone_for_a_minute(harness, server, worker):
    server.refusal = response(404, b"")
    router = open_router(harness, worker)
    eventually(lambda: 'status="error"} 1' in router.server.metrics_text())
    assert len(server.requests) == 1
    assert not backends(harness, router)[0]["connection"]["connected"]


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (response(404, b""), "responds with status 404"),
        (response(200, b"{}"), "responds with a content type other than text/event-stream"),
        (response(503, b""), "responds with status 503"),
        (b"HTTP/1.1 200 OK\r\n\0\r\n\r\n", "failed: the response is not HTTP"),
        (HEAD + b"data: " + b"x" * (2**20 + 1), "sent an event of more than 1048576 bytes"),
        (
            HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            "the response's body is malformed",
        ),
    ],
)
def test_the_log_has_the_reason_once(harness, server, worker, refusal, reason, capfd):
    server.refusal = refusal
    router = open_router(harness, worker)

    def failed():
        tried = backends(harness, router)[0]["connection"]["reconnect_count"] > 0
        return tried or 'status="error"} 1' in router.server.metrics_text()

    eventually(failed)
    text = log_of(router, capfd)
    assert reason in text
    assert text.count('source "vllm-1"') - text.count("is connected") == 1


def test_a_flood_of_reconnects_is_slowed_down(harness):
    """Each stream ends at once; the delays double from 1 ms on."""

    def answer(connection, message):
        connection.send(HEAD if message.target == PATH else response(404, b""))
        raise ConnectionResetError

    worker = harness.worker(answer)
    router = open_router(harness, worker)
    eventually(lambda: backends(harness, router)[0]["connection"]["reconnect_count"] >= 8)
    assert len(worker.connections) < 20


def test_an_endless_line_does_not_fill_the_memory(harness):
    def answer(connection, message):
        connection.send(HEAD if message.target == PATH else response(404, b""))
        while message.target == PATH:
            connection.send(b"x" * 65_536)

    worker = harness.worker(answer)
    router = open_router(harness, worker, kv_prefix_source=[source_of(worker, reconnect_interval_ms=60_000)])
    wait_for_index(harness, router, received=1, dropped=1, entry_count=0)
    eventually(lambda: any(connection.ended == "reset" for connection in worker.connections))


def test_a_million_prefixes_stay_within_the_limit(harness, server, worker):
    router = open_router(harness, worker)
    stream = server.wait_connected()
    for first in range(0, 200_000, 1000):
        stream.send(b"".join(event("created", prefix(number)) for number in range(first, first + 1000)))
    wait_for_index(harness, router, received=200_000, dropped=0, index_created=200_000)
    index = stats(harness, router)["index"]
    assert 900 <= index["entry_count"] <= 1000
    assert index["entry_count"] + index["total_evictions"] == 200_000


def test_requests_are_served_while_a_source_floods(harness, server, worker):
    router = open_router(harness, worker)
    stream = server.wait_connected()
    flood = event("purged") * 2000 + event("created", PREFIX) * 2000
    client = harness.client(router)
    for _ in range(20):
        stream.send(flood)
        assert client.ask("POST", "/v1/completions", body=b"{}").status == 200
    wait_for_index(harness, router, received=80_000, entry_count=1)


def test_a_worker_that_leaves_takes_its_entries_and_its_stream_along(harness, server, worker):
    other = SseKvServer()
    router = open_router(harness, worker, harness.worker(other))
    stream = server.wait_connected()
    other.wait_connected()
    for source in (server, other):
        source.send(event("created", PREFIX, 16))
    wait_for_index(harness, router, prefix_count=1, entry_count=2)
    router.core.remove_worker(worker.url)
    assert stats(harness, router)["index"]["entry_count"] == 1
    assert stream.wait_ended() in ("eof", "reset")
    eventually(lambda: not backends(harness, router)[0]["connection"]["connected"])
    router.core.add_worker(worker.url)  # the same place, another worker
    server.wait_connected(2)
    assert stats(harness, router)["index"]["entry_count"] == 1
    server.send(event("created", PREFIX, 16))
    wait_for_index(harness, router, entry_count=2)


def test_a_source_waits_for_its_worker(harness, server, worker):
    router = harness.router(
        policy="auto", routing={"kv_index_max_entries": 100}, kv_prefix_source=[source_of(worker)]
    )
    assert stats(harness, router)["event_sources"][0]["connected"] is False
    assert server.requests == []
    router.core.add_worker(worker.url)
    server.wait_connected()


def test_a_source_may_be_elsewhere_and_gets_no_key_of_another_host(harness, server, worker):
    aside = harness.worker(server)
    url = aside.url.replace("127.0.0.1", "localhost")
    source = f"vllm-1={url}{PATH},worker={worker.url},reconnect_interval_ms=1"
    router = open_router(harness, worker, kv_prefix_source=[source], api_key="secret")
    server.wait_connected()
    assert server.requests[0].get("authorization") is None
    server.send(event("created", PREFIX, 16))
    wait_for_index(harness, router, entry_count=1)


def test_a_server_that_accepts_and_says_nothing_delays_no_shutdown(harness):
    router = open_router(harness, harness.silent_port())
    eventually(lambda: not stats(harness, router)["event_sources"][0]["connected"])


def test_a_refused_connection_is_tried_again(harness, server):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    router = harness.router(
        f"http://127.0.0.1:{port}",
        policy="auto",
        routing={"kv_index_max_entries": 100},
        kv_prefix_source=[f"a=http://127.0.0.1:{port}{PATH},reconnect_interval_ms=1"],
    )
    eventually(lambda: backends(harness, router)[0]["connection"]["reconnect_count"] >= 3)
    harness.worker(server, port=port)
    server.wait_connected()


def test_sources_without_an_index_are_told_to_the_log(harness, worker, capfd):
    router = open_router(harness, worker, routing={"kv_index_max_entries": 0})
    assert "--kv-prefix-source has no effect without a prefix index" in log_of(router, capfd)


def test_times_are_utc_in_seconds(harness, server, worker):
    router = open_router(harness, worker)
    server.wait_connected()
    assert stats(harness, router)["event_sources"][0]["last_event_at"] is None
    server.send(event("created", PREFIX))
    wait_for_index(harness, router, received=1)
    last = stats(harness, router)["event_sources"][0]["last_event_at"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", last)
    assert json.loads(json.dumps(last)) == backends(harness, router)[0]["connection"]["last_event_at"]
