"""Workers that accept requests, pass their health checks and serve nothing (cpp/worker/hang_detector.h).

When which worker is in doubt is tests/unit/worker/test_hang_detector.py.
"""

import json
import threading

import pytest

from tests.fakes.wire import chunked, eventually, request, response

PATH = "/v1/completions"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM = HEAD + chunked(b"data: {}\n\n", b"data: [DONE]\n\n")
PLAIN = response(200, b"{}")
# What its HTTP server sends without the engine.
SERVED_ALONE = {"/v1/chat/completions": response(400, b"{}"), "/tokenize": PLAIN}
ON = {
    "disable_retries": False,
    "retry_initial_backoff_ms": 1,
    "retry_max_backoff_ms": 5,
    "hang_detection_min_secs": 0.3,
    "policy": "consistent_hash",
}


class Engine:
    """Serves until it hangs; then it accepts requests, and its health check passes.

    The prompt "poison" has it hang, the prompt "slow" waits for the gate in any case. `says`: what its server
    sends meanwhile by itself. `users`: whose requests the policy sends there.
    """

    def __init__(self, harness, says=b""):
        self.hangs = threading.Event()
        self.says = says
        self.worker = harness.worker(self.answer)
        self.gate = self.worker.gate()
        self.begun = 0  # requests that wait for the gate
        self.users = []

    def answer(self, connection, message):
        if message.method == "GET":
            connection.send(response(200, b""))
        elif message.target in SERVED_ALONE:
            connection.send(SERVED_ALONE[message.target])
        else:
            body = json.loads(message.body)
            if body["prompt"] == "poison":
                self.hangs.set()
            whole = STREAM if body["stream"] else PLAIN
            if self.hangs.is_set() or body["prompt"] == "slow":
                self.begun += 1
                if self.says:
                    connection.send(self.says)
                self.gate.wait()
                whole = whole.removeprefix(self.says)
            connection.send(whole)

    @property
    def url(self):
        return self.worker.url


def metric(router, name, worker=None):
    label = f'{{worker="{worker.url}"}}' if worker is not None else ""
    for line in router.server.metrics_text().splitlines():
        if line.startswith(f"vllm_router_{name}{label} "):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(name)


def send(client, user, path=PATH, prompt="hi", stream=True):
    body = json.dumps({"model": "m", "prompt": prompt, "stream": stream, "user": user}).encode()
    client.send(request("POST", path, body=body))


def ask(client, engine, path=PATH, stream=True):
    """A request that is for this engine, which may be out of rotation."""
    send(client, engine.users[0], path, stream=stream)
    return client.read_response()


def open_fleet(harness, engines, stream=True, **options):
    """All have served so much that their times are known."""
    router = harness.router(*(engine.worker for engine in engines), **{**ON, **options})
    client = harness.client(router)
    for user in map(str, range(5000)):
        before = [len(engine.worker.posts) for engine in engines]
        send(client, user, stream=stream)
        assert client.read_response().status == 200
        [served] = [e for e, posts in zip(engines, before, strict=True) if len(e.worker.posts) > posts]
        served.users.append(user)
        if min(before) >= 30:
            return router, client
    raise AssertionError("an engine gets no requests")


def two_engines(harness, says=b"", **options):
    """Both have served; the first one hangs now."""
    engines = Engine(harness, says), Engine(harness)
    router, client = open_fleet(harness, engines, **options)
    engines[0].hangs.set()
    return engines, router, client


def clients_at(harness, router, engine, count=2, **fields):
    """So many clients wait for it."""
    waiting = []
    for user in engine.users[:count]:
        waiting.append(harness.client(router))
        send(waiting[-1], user, **fields)
    eventually(lambda: engine.begun == count)
    return waiting


def serve_until(client, engine, condition, stream=True):
    """It serves meanwhile."""

    def serves():
        assert ask(client, engine, stream=stream).status == 200
        return condition()

    eventually(serves)


def in_doubt(router, engine):
    return metric(router, "worker_in_doubt", engine.worker) == 1


@pytest.mark.parametrize("says", [b"", HEAD], ids=["nothing", "a head"])
def test_its_requests_move_and_it_gets_no_new_ones_until_it_serves(harness, says):
    """Row 34. An API server may send the head of a stream although the engine behind it hangs."""
    (hung, other), router, client = two_engines(harness, says)
    waiting = clients_at(harness, router, hung, 3)
    serve_until(client, other, lambda: in_doubt(router, hung))
    for asking in waiting:
        assert asking.read_response().status == 200
    assert metric(router, "moved_requests_total") >= 2
    assert metric(router, "worker_doubts_total", hung.worker) == 1
    assert metric(router, "worker_doubts_total", other.worker) == 0
    assert metric(router, "eligible_workers") == 1
    hung.hangs.clear()
    hung.gate.open()
    serve_until(client, other, lambda: not in_doubt(router, hung))
    assert metric(router, "eligible_workers") == 2


@pytest.mark.parametrize("path", list(SERVED_ALONE))
def test_a_response_of_its_server_alone_is_no_sign_of_life(harness, path):
    """One client's bad requests, or prompts to count, must not hide an engine that hangs."""
    (hung, other), router, client = two_engines(harness)
    waiting = clients_at(harness, router, hung)
    bad = harness.client(router)

    def found():
        assert ask(client, other).status == 200
        assert ask(bad, hung, path).status in (200, 400)
        return in_doubt(router, hung)

    eventually(found)
    assert [asking.read_response().status for asking in waiting] == [200, 200]
    hung.gate.open()


def test_without_retries_requests_stay_where_they_are(harness):
    (hung, other), router, client = two_engines(harness, disable_retries=True)
    waiting = clients_at(harness, router, hung)
    serve_until(client, other, lambda: in_doubt(router, hung))
    assert metric(router, "moved_requests_total") == 0
    hung.hangs.clear()
    hung.gate.open()
    assert [asking.read_response().status for asking in waiting] == [200, 200]
    serve_until(client, other, lambda: not in_doubt(router, hung))


def test_a_worker_that_has_lost_its_requests_is_found_to_serve_again(harness):
    """No request there will ever have a byte, and none of those that come can move."""
    (hung, other), router, client = two_engines(harness, disable_retries=True)
    waiting = clients_at(harness, router, hung)
    serve_until(client, other, lambda: in_doubt(router, hung))
    hung.hangs.clear()
    serve_until(client, other, lambda: not in_doubt(router, hung))
    hung.gate.open()
    assert [asking.read_response().status for asking in waiting] == [200, 200]


def test_long_responses_that_do_not_stream_stay_at_a_worker_that_serves(harness):
    """Two of them, while a policy sends all others elsewhere, look like a hang until a probe is served."""
    engines = busy, other = Engine(harness), Engine(harness)
    router, client = open_fleet(harness, engines, stream=False)
    waiting = clients_at(harness, router, busy, prompt="slow", stream=False)
    doubts = lambda: metric(router, "worker_doubts_total", busy.worker)  # noqa: E731
    serve_until(client, other, lambda: doubts() == 1, stream=False)
    serve_until(client, other, lambda: not in_doubt(router, busy), stream=False)
    assert metric(router, "moved_requests_total") == 0
    assert other.begun == 0
    busy.gate.open()
    assert [asking.read_response().status for asking in waiting] == [200, 200]


def test_a_request_that_makes_engines_hang_costs_two(harness):
    engines = [Engine(harness) for _ in range(6)]
    router, client = open_fleet(harness, engines)
    first = engines[0]
    poison = [harness.client(router) for _ in range(2)]
    for asking in poison:
        send(asking, first.users[0], prompt="poison")
    eventually(lambda: first.begun == 2)

    def doubts():
        for engine in engines:
            if not engine.hangs.is_set():
                assert ask(client, engine).status == 200
        return sum(in_doubt(router, engine) for engine in engines)

    eventually(lambda: doubts() == 2)
    for _ in range(10):
        doubts()
    assert sum(engine.hangs.is_set() for engine in engines) == 2
    for engine in engines:
        engine.gate.open()
    assert [asking.read_response().status for asking in poison] == [200, 200]
