"""Clients that announce much and bring little: others are served all the same."""

import threading

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, eventually, request, response
from tests.proxy.test_long_bodies import POSTS, chat, digest, held, metric
from tests.proxy.test_metrics import page_of

MIB = 2**20


def drip(harness, router, announced, sent, fields=()):
    """A client that sends so much of its body, and then nothing."""
    client = harness.client(router)
    head = request("POST", POSTS, ("Content-Length", str(announced)), *fields)
    client.send(head + b"x" * sent)
    return client


def too_slow(client):
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (408, "body_too_slow")
    client.must_be_closed()
    return error_of(answer)["message"]


def test_many_that_drip_keep_no_long_prompt_from_its_memory(harness):
    """mending row 10: memory is claimed as bytes arrive."""
    worker = harness.worker(digest)
    router = harness.router(worker, policy="consistent_hash", queue_timeout_secs=3)
    drippers = [drip(harness, router, 8 * MIB, 66_000) for _ in range(32)]
    eventually(lambda: router.in_flight() == 32)
    for client in drippers:
        client.wait_until_read()
    assert held(router) <= 32 * 128 * 1024
    for _ in range(2):
        honest = harness.client(router)
        assert honest.ask("POST", POSTS, body=chat("ann", 8 * MIB)).status == 200


def test_many_that_grow_at_once_all_come_to_their_end(harness):
    """Together they need ten times the memory that there is."""
    worker = harness.worker(digest)
    router = harness.router(worker, policy="consistent_hash", body_memory_mb=16, threads=2)
    clients = [harness.client(router) for _ in range(20)]
    bodies = [chat(f"user {number}", 8 * MIB - number) for number in range(20)]
    statuses = []

    def send(client, body):
        client.send(request("POST", POSTS, body=body))
        statuses.append(client.read_response().status)

    threads = [
        threading.Thread(target=send, args=(client, body))
        for client, body in zip(clients, bodies, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert statuses == [200] * 20
    eventually(lambda: held(router) == 0)


def test_who_holds_memory_and_brings_nothing_goes_when_others_wait_for_it(harness):
    """mending row 10: slow bodies are the first to go."""
    worker = harness.worker(digest)
    router = harness.router(worker, policy="consistent_hash", body_memory_mb=16)
    slow = [drip(harness, router, 8 * MIB, 5 * MIB) for _ in range(2)]
    eventually(lambda: held(router) == 16 * MIB)
    honest = harness.client(router)
    assert honest.ask("POST", POSTS, body=chat("ann", 8 * MIB)).status == 200
    cut = 'admission_rejected_total{reason="body_too_slow"}'
    assert metric(router, cut) == 1
    assert "other requests are waiting" in too_slow(slow[0])
    slow[1].send(b"x" * (3 * MIB))
    assert slow[1].read_response().status == 200


@pytest.mark.parametrize("holds", ["memory", "permits"])
def test_who_sends_just_above_the_rate_goes_in_the_end_when_others_wait(harness, holds):
    """mending rows 10 and 13: 80 such uploads held all memory for bodies, and 16 all permits."""
    worker = harness.worker(digest)
    options = {"policy": "consistent_hash", "body_memory_mb": 16}
    if holds == "permits":
        options = {"max_concurrent_requests": 2, "policy": "round_robin"}
    router = harness.router(worker, body_rate_window_secs=3, threads=2, **options)
    movers = [drip(harness, router, 8 * MIB, 5 * MIB) for _ in range(2)]
    over = threading.Event()

    def move():
        while not over.wait(0.01):  # twenty times the rate
            for client in movers:
                client.send_what_fits(b"x" * 200)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        if holds == "memory":
            eventually(lambda: held(router) == 16 * MIB)
        else:
            eventually(lambda: metric(router, "concurrent_requests") == 2)
        honest = harness.client(router)
        assert honest.ask("POST", POSTS, body=chat("ann", 8 * MIB)).status == 200
    finally:
        over.set()
        mover.join()
    assert metric(router, 'admission_rejected_total{reason="body_too_slow"}') >= 1


@pytest.mark.parametrize("queue_size", [100, 0])
def test_stalled_uploads_do_not_keep_the_permits_from_others(harness, queue_size):
    """mending row 13: ten stalled uploads and ten permits; other requests are served."""
    worker = harness.worker(lambda connection, _: connection.send(response(200, b"hello")))
    router = harness.router(worker, max_concurrent_requests=10, queue_size=queue_size, queue_timeout_secs=10)
    stalled = [drip(harness, router, 2 * MIB, 66_000) for _ in range(10)]
    eventually(lambda: metric(router, "concurrent_requests") == 10)
    honest = harness.client(router)
    served = []

    def asked_until_served():
        answer = honest.ask("POST", "/v1/completions", body=b"{}")
        assert answer.status in ((200,) if queue_size else (200, 429))
        served.append(answer.status)
        return answer.status == 200

    for _ in range(3):
        eventually(asked_until_served)
    cut = int(metric(router, 'admission_rejected_total{reason="body_too_slow"}'))
    assert cut >= 1
    assert cut <= len(served)
    if queue_size:
        assert cut == 1, "the first one's permit was enough for all three"
    for client in stalled[:1]:
        assert "other requests are waiting" in too_slow(client)


def test_uploads_that_move_keep_their_permits(harness):
    worker = harness.worker(digest)
    router = harness.router(
        worker, max_concurrent_requests=2, client_min_body_rate=64, body_rate_window_secs=9, threads=2
    )
    movers = [drip(harness, router, 2 * MIB, 100_000) for _ in range(2)]
    eventually(lambda: metric(router, "concurrent_requests") == 2)
    waiting = harness.client(router)
    waiting.send(request("POST", POSTS, body=b"{}"))
    eventually(lambda: metric(router, "queue_depth") == 1)
    pause = worker.gate()
    for _ in range(20):  # 20 KiB per second, looked at every 0.3 s
        for client in movers:
            client.send(b"x" * 1024)
        pause._event.wait(0.05)
    assert metric(router, "queue_depth") == 1
    for client in movers:
        client.send(b"x" * (2 * MIB - 100_000 - 20 * 1024))
        assert client.read_response().status == 200
    assert waiting.read_response().status == 200


def test_stalled_uploads_do_not_keep_a_worker_s_places_from_others(harness):
    worker = harness.worker(lambda connection, _: connection.send(response(200, b"hello")))
    router = harness.router(worker, routing={"max_worker_requests": 2})
    stalled = [drip(harness, router, 2 * MIB, 66_000) for _ in range(2)]
    eventually(lambda: sum(router.loads()) == 2)
    assert harness.client(router).ask("POST", "/v1/completions", body=b"{}").status == 200
    too_slow(stalled[0])


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
@pytest.mark.parametrize("sent", [100, 66_000])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_below_the_minimum_rate_is_answered_with_408(harness, policy, sent, framing):
    """mending row 10: --client-min-body-rate holds on average, though something comes all the time."""
    worker = harness.worker(digest)
    router = harness.router(worker, policy=policy, client_min_body_rate=2**20, body_rate_window_secs=0.3)
    if framing == "length":
        client = drip(harness, router, 2 * MIB, sent)
    else:
        client = harness.client(router)
        client.send(request("POST", POSTS, ("Transfer-Encoding", "chunked")) + chunk(b"x" * sent))
    while not client.readable(0.01):
        client.send_what_fits(b"x" if framing == "length" else chunk(b"x"))
    assert "1048576 bytes per second (--client-min-body-rate); send" in too_slow(client)
    for connection in worker.connections:
        connection.wait_ended()
    errors = page_of(router)["request_errors_total"]
    assert errors.value(route=POSTS, error_type="body_too_slow") == 1


def test_a_rate_of_zero_is_none(harness):
    worker = harness.worker(digest)
    router = harness.router(worker, client_min_body_rate=0, body_rate_window_secs=0.03)
    client = drip(harness, router, 100_000, 66_000)
    worker.gate()._event.wait(0.3)
    client.send(b"x" * 34_000)
    assert client.read_response().status == 200


def test_a_worker_that_takes_nothing_does_not_make_its_client_slow(harness):
    """Only the time in which the client is waited for counts."""
    gate = None

    def take_late(connection):
        connection.read_request_head()
        gate.wait()
        connection.read_exactly(20 * MIB)
        connection.send(response(200, b"all"))

    worker = harness.worker(script=take_late, receive_buffer=4096)
    gate = worker.gate()
    router = harness.router(worker, body_rate_window_secs=0.3, client_min_body_rate=2**20)
    client = harness.client(router)
    body = b"x" * (20 * MIB)
    sender = threading.Thread(target=client.send, args=(request("POST", POSTS, body=body),))
    sender.start()
    gate.wait_for_someone()
    gate._event.wait(1.0)
    gate.open()
    sender.join(30)
    assert client.read_response().status == 200
