"""Long bodies: routed on their beginning, held only as far as there is memory for them, and unchanged."""

import hashlib
import json
import re

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, eventually, request, response

MIB = 2**20
HELD = 8 * MIB  # of a body that the policy has to see
POSTS = "/v1/chat/completions"


def metric(router, name):
    found = re.findall(rf"^vllm_router_{re.escape(name)} (\S+)$", router.server.metrics_text(), re.MULTILINE)
    return float(found[0]) if found else 0.0


def digest(connection, message):
    text = f"{len(message.body)} {hashlib.sha256(message.body).hexdigest()} {message.framing}"
    connection.send(response(200, text.encode()))


def chat(user, size):
    """A chat of so many bytes whose session is named at the beginning."""
    head = json.dumps({"user": user, "messages": [{"role": "user", "content": ""}]})[:-4].encode()
    return head + b"x" * (size - len(head) - 4) + b'"}]}'


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", [HELD - 1, HELD, HELD + 1, HELD + 100_000, 3 * HELD])
def test_a_body_of_any_length_arrives_unchanged_where_its_policy_has_to_see_it(harness, framing, size):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker, policy="consistent_hash"))
    body = chat("ann", size)
    if framing == "length":
        client.send(request("POST", POSTS, body=body))
    else:
        client.send(request("POST", POSTS, ("Transfer-Encoding", "chunked")))
        for at in range(0, size, 100_001):
            client.send(chunk(body[at : at + 100_001]))
        client.send(b"0\r\n\r\n")
    length, sha, framed = client.read_response().body.decode().split()
    assert (int(length), sha) == (size, hashlib.sha256(body).hexdigest())
    if size <= HELD:
        assert framed == "length"
    elif size >= HELD + 100_000:
        assert framed == framing
    client.must_be_open()


def test_a_long_body_is_routed_by_its_beginning(harness):
    """A session keeps its worker, whether its body could be held whole or not."""
    workers = [harness.worker(digest) for _ in range(3)]
    router = harness.router(*workers, policy="consistent_hash")
    client = harness.client(router)
    for user in ("ann", "bob", "cleo"):
        seen = []
        for size in (1000, HELD + MIB):
            before = [len(worker.requests) for worker in workers]
            client.send(request("POST", POSTS, body=chat(user, size)))
            assert client.read_response().status == 200
            after = [len(worker.requests) for worker in workers]
            seen.append([b - a for a, b in zip(before, after, strict=True)])
        assert seen[0] == seen[1], user
    for number in range(30):  # three may well meet at one
        assert client.ask("POST", POSTS, body=chat(f"user {number}", 1000)).status == 200
    assert sum(bool(worker.requests) for worker in workers) > 1


def test_a_long_body_that_is_no_json_is_served_too(harness):
    worker = harness.worker(digest)
    client = harness.client(harness.router(worker, policy="consistent_hash"))
    client.send(request("POST", POSTS, body=b"\xff" * (HELD + MIB)))
    assert client.read_response().status == 200


def test_a_worker_sees_a_long_body_before_its_end_has_come(harness):
    began = None

    def take(connection):
        connection.read_request_head()
        began.wait()
        connection.ending()

    worker = harness.worker(script=take)
    began = worker.gate()
    client = harness.client(harness.router(worker, policy="consistent_hash"))
    body = chat("ann", HELD + MIB)
    client.send(request("POST", POSTS, ("Content-Length", str(10 * HELD))) + body)
    began.wait_for_someone()
    client.close()
    began.open()


def held(router):
    return metric(router, "body_memory_bytes")


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
def test_memory_is_reserved_while_a_body_is_held_and_returned(harness, policy):
    gate = None

    def answer(connection, message):
        gate.wait()
        digest(connection, message)

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, policy=policy)
    small, long = harness.client(router), harness.client(router)
    small.send(request("POST", POSTS, body=chat("ann", 60_000)))
    gate.wait_for_someone()
    assert held(router) == 0, "small ones are not counted"
    long.send(request("POST", POSTS, body=chat("ann", MIB)))
    gate.wait_for_someone()
    assert held(router) == MIB
    gate.open()
    assert (small.read_response().status, long.read_response().status) == (200, 200)
    eventually(lambda: held(router) == 0)


class Full:
    """A router with memory for two long bodies, which others hold."""

    def __init__(self, harness, policy="consistent_hash", **options):
        self.gate = None
        self.worker = harness.worker(self.answer)
        self.gate = self.worker.gate()
        self.router = harness.router(self.worker, policy=policy, body_memory_mb=16, **options)
        self.holders = [harness.client(self.router) for _ in range(2)]
        for client in self.holders:
            client.send(request("POST", POSTS, body=chat("ann", HELD)))
            self.gate.wait_for_someone()
        assert held(self.router) == 16 * MIB

    def answer(self, connection, message):
        self.gate.wait()
        digest(connection, message)

    def finish(self):
        self.gate.open()
        for client in self.holders:
            assert client.read_response().status == 200
        eventually(lambda: held(self.router) == 0)


def test_a_body_waits_for_memory_and_its_client_stalls(harness):
    full = Full(harness)
    client = harness.client(full.router)
    body = chat("bob", HELD)
    client.send(request("POST", POSTS, ("Content-Length", str(HELD))))
    sent = 0
    while sent < HELD and client.writable(0.5):  # until both sockets are full
        sent += client.send_what_fits(body[sent:])
    assert sent < HELD, "somebody has read all of it"
    assert len(full.worker.requests) == 2
    full.gate.open()
    for holder in full.holders:
        assert holder.read_response().status == 200
    client.send(body[sent:])
    assert client.read_response().body.split()[1] == hashlib.sha256(body).hexdigest().encode()
    eventually(lambda: held(full.router) == 0)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_waits_too_long_for_memory_gets_503(harness, framing):
    full = Full(harness, queue_timeout_secs=0.3)
    client = harness.client(full.router)
    if framing == "length":
        client.send(request("POST", POSTS, ("Content-Length", str(HELD))) + b"{" * 100_000)
    else:
        client.send(request("POST", POSTS, ("Transfer-Encoding", "chunked")) + chunk(b"{" * 100_000))
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (503, "no_body_memory")
    assert answer.get("retry-after") == "1"
    eventually(lambda: metric(full.router, 'admission_rejected_total{reason="no_body_memory"}') == 1)
    full.finish()


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
def test_a_client_that_leaves_while_it_waits_for_memory_is_forgotten(harness, how):
    full = Full(harness, queue_timeout_secs=100)
    client = harness.client(full.router)
    client.send(request("POST", POSTS, ("Content-Length", str(HELD))) + b"{" * 100_000)
    eventually(lambda: full.router.in_flight() == 3)
    client.wait_until_received_by_peer(1)
    getattr(client, how)()
    eventually(lambda: full.router.in_flight() == 2)
    full.finish()


def test_small_bodies_pass_while_there_is_no_memory(harness):
    full = Full(harness)
    full.gate.open()
    client = harness.client(full.router)
    assert client.ask("POST", POSTS, body=b"{}").status == 200
    full.finish()


def test_where_the_head_is_enough_a_long_body_needs_no_memory(harness):
    """It is not kept to be sent again, that is all."""
    worker = harness.worker(digest)
    router = harness.router(worker, policy="round_robin", body_memory_mb=16)
    clients = [harness.client(router) for _ in range(20)]
    for client in clients:  # each would be kept
        client.send(request("POST", POSTS, ("Content-Length", str(MIB))) + b"x" * 70_000)
    eventually(lambda: router.in_flight() == 20)
    eventually(lambda: held(router) == 8 * MIB, "half of it")
    for client in clients:
        client.send(b"x" * (MIB - 70_000))
        assert client.read_response().body.startswith(str(MIB).encode())
    eventually(lambda: held(router) == 0)


def test_a_shutdown_answers_those_who_wait_for_memory(harness):
    full = Full(harness, shutdown_grace_period_secs=100)
    client = harness.client(full.router)
    client.send(request("POST", POSTS, ("Content-Length", str(HELD))) + b"{" * 100_000)
    eventually(lambda: full.router.in_flight() == 3)
    full.router.may_cut = True
    full.router.shutdown()
    full.router.shutdown()
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (503, "shutting_down")
    full.gate.open()
    full.router.must_end()
