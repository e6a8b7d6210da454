"""Workers that ask for a rest by Retry-After: others are asked first, and nobody is turned away for that."""

import pytest

from tests.fakes.wire import eventually, response

COMPLETIONS = "/v1/completions"
ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}


def ask(client):
    return client.ask("POST", COMPLETIONS, body=b"{}")


def busy_once(harness, *fields, status=503):
    """Says once that it is busy."""
    statuses = iter([status])

    def answer(connection, _message):
        first = next(statuses, None)
        if first is None:
            connection.send(response(200, b"hello"))
        else:
            connection.send(response(first, b"busy", *fields))

    return harness.worker(answer)


def rests(router):
    lines = router.server.metrics_text().splitlines()
    return [int(line.split()[-1]) for line in lines if line.startswith("vllm_router_worker_backoff{")]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("policy", ["round_robin", "random", "least_load", "consistent_hash"])
def test_a_worker_that_asked_for_a_rest_is_left_alone_while_there_are_others(harness, status, policy):
    busy, healthy = busy_once(harness, ("Retry-After", "3600"), status=status), harness.worker()
    router = harness.router(busy, healthy, policy=policy, **ON)
    client = harness.client(router)
    sessions = iter(range(1000))

    def served():
        answer = client.ask("POST", COMPLETIONS, ("X-Session-ID", f"s{next(sessions)}"), body=b"{}")
        return answer.body == b"hello"

    while not busy.requests:
        assert served()
    assert rests(router) == [1, 0]
    assert all(served() for _ in range(20))
    assert len(busy.requests) == 1


def test_what_one_client_hears_counts_for_the_next_without_any_retry(harness):
    busy, healthy = busy_once(harness, ("Retry-After", "3600")), harness.worker()
    router = harness.router(busy, healthy, threads=2)
    assert ask(harness.client(router)).body == b"busy"
    for _ in range(8):
        assert ask(harness.client(router)).body == b"hello"
    assert (len(busy.requests), len(healthy.requests)) == (1, 8)


def test_after_its_rest_it_has_its_share_again(harness):
    busy, healthy = busy_once(harness, ("Retry-After", "1")), harness.worker()
    router = harness.router(busy, healthy)
    client = harness.client(router)
    assert ask(client).body == b"busy"
    assert ask(client).body == ask(client).body == b"hello"
    assert len(busy.requests) == 1
    eventually(lambda: ask(client).body == b"hello" and len(busy.requests) == 2)
    assert rests(router) == [0, 0]
    before = len(busy.requests)
    for _ in range(10):
        ask(client)
    assert len(busy.requests) == before + 5


def test_a_worker_that_is_alone_is_asked_all_the_same(harness):
    worker = busy_once(harness, ("Retry-After", "3600"))
    client = harness.client(harness.router(worker))
    assert [ask(client).body for _ in range(3)] == [b"busy", b"hello", b"hello"]


def test_when_all_rest_all_are_asked(harness):
    workers = [busy_once(harness, ("Retry-After", "3600"), status=429) for _ in range(3)]
    client = harness.client(harness.router(*workers))
    assert [ask(client).status for _ in range(6)] == [429] * 3 + [200] * 3
    assert [len(worker.requests) for worker in workers] == [2, 2, 2]


@pytest.mark.parametrize(
    ("status", "value"),
    [(503, "0"), (503, "soon"), (503, "Fri, 31 Dec 1999 23:59:59 GMT"), (500, "9"), (200, "9")],
)
def test_nobody_rests_for_anything_else(harness, status, value):
    worker, other = busy_once(harness, ("Retry-After", value), status=status), harness.worker()
    client = harness.client(harness.router(worker, other))
    for _ in range(4):
        ask(client)
    assert (len(worker.requests), len(other.requests)) == (2, 2)


def test_one_that_rests_is_better_than_others_that_are_full(harness):
    """Under --max-worker-requests nobody waits in line while a worker has room."""

    def hold(connection, _message):
        gate.wait()
        connection.send(response(200, b"held"))

    busy, full = busy_once(harness, ("Retry-After", "3600")), harness.worker(hold)
    gate = full.gate()
    router = harness.router(busy, full, routing={"max_worker_requests": 1}, queue_timeout_secs=100)
    first, second, third = (harness.client(router) for _ in range(3))
    assert ask(first).body == b"busy"
    second.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
    gate.wait_for_someone()
    assert ask(third).body == b"hello"
    gate.open()
    assert second.read_response().body == b"held"


# ---- what the client gets in the end


def sequence(harness, *answers):
    """Answers one request after the other with these: bytes to send, or a way to end the connection."""
    left = iter(answers)

    def script(connection):
        while True:
            connection.read_request()
            answer = next(left)
            if isinstance(answer, bytes):
                connection.send(answer)
            else:
                getattr(connection, answer)()
                return

    return harness.worker(script=script)


BUSY = response(503, b"busy, come back", ("x-worker", "a"))
CHUNKS = (
    b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\nx-worker: a\r\n\r\n3\r\nbus\r\n1\r\ny\r\n0\r\n\r\n"
)


@pytest.mark.parametrize("said", [BUSY, CHUNKS], ids=["length", "chunks"])
@pytest.mark.parametrize("then", ["close", "reset"])
def test_a_workers_answer_says_more_than_ours_about_one_that_gave_none(harness, said, then):
    first, second = sequence(harness, said), sequence(harness, then)
    router = harness.router(first, second, retry_max_retries=2, decision_headers=True, **ON)
    client = harness.client(router)
    answer = ask(client)
    assert (answer.status, answer.get("x-worker")) == ((503, "a") if said is BUSY else (500, "a"))
    assert answer.body == (b"busy, come back" if said is BUSY else b"busy")
    assert answer.get("x-vllm-router-worker") == first.url
    client.must_be_open()
    router.wait_for_load(0)


def test_it_is_the_last_of_them(harness):
    # The first reset ends a kept connection, and is followed by a fresh one that nobody counts.
    first = sequence(harness, response(503, b"one"), "reset", "reset")
    second = sequence(harness, response(503, b"two"), "reset", "reset")
    router = harness.router(first, second, retry_max_retries=4, **ON)
    assert ask(harness.client(router)).body == b"two"


def test_also_for_head(harness):
    first, second = (
        sequence(harness, b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\n"),
        sequence(harness, "close"),
    )
    client = harness.client(harness.router(first, second, retry_max_retries=2, **ON))
    answer = client.ask("HEAD", "/x")
    assert (answer.status, answer.get("content-length")) == (503, "4")
    client.must_be_open()


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 503 No\r\nContent-Length: 100000\r\n\r\n" + bytes(99_999),
        b"HTTP/1.1 503 No\r\nConnection: close\r\n\r\nuntil the end",
    ],
    ids=["long", "until close"],
)
def test_but_only_if_all_of_it_has_come(harness, said):
    first, second = sequence(harness, said), sequence(harness, "close")
    router = harness.router(first, second, retry_max_retries=2, **ON)
    assert ask(harness.client(router)).status == 502


def test_an_answer_whose_body_comes_during_the_pause_leaves_its_connection(harness):
    """Servers write head and body one after the other."""

    def answer(connection, _message):
        if len(worker.requests) == 1:
            connection.send(b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\n")
            connection.wait_until_read()
            connection.send(b"body")
        else:
            connection.send(response(200, b"hello"))

    worker = harness.worker(answer)
    slow = {"disable_retries": False, "retry_initial_backoff_ms": 500, "retry_jitter_factor": 0.0}
    client = harness.client(harness.router(worker, **slow))
    assert ask(client).body == b"hello"
    assert len(worker.connections) == 1
