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
ON = {
    "disable_retries": False,
    "retry_initial_backoff_ms": 1,
    "retry_max_backoff_ms": 5,
    "hang_detection_min_secs": 0.3,
    "policy": "consistent_hash",
}


class Engine:
    """Streams until it hangs; then it accepts requests, and its health check passes.

    `says`: what its server sends meanwhile by itself. `users`: whose requests the policy sends there.
    """

    def __init__(self, harness, says=b""):
        self.hangs = threading.Event()
        self.says = says
        self.worker = harness.worker(self.answer)
        self.gate = self.worker.gate()
        self.begun = 0  # requests while it hangs
        self.users = []

    def answer(self, connection, message):
        if message.method == "GET":
            connection.send(response(200, b""))
        elif message.target == "/v1/chat/completions":  # its server rejects it without the engine
            connection.send(response(400, b"{}"))
        elif not self.hangs.is_set():
            connection.send(STREAM)
        else:
            self.begun += 1
            if self.says:
                connection.send(self.says)
            self.gate.wait()
            connection.send(STREAM.removeprefix(self.says))

    @property
    def url(self):
        return self.worker.url


def metric(router, name, worker=None):
    label = f'{{worker="{worker.url}"}}' if worker is not None else ""
    for line in router.server.metrics_text().splitlines():
        if line.startswith(f"vllm_router_{name}{label} "):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(name)


def send(client, user, path=PATH):
    body = json.dumps({"model": "m", "prompt": "hi", "stream": True, "user": user}).encode()
    client.send(request("POST", path, body=body))


def ask(client, engine, path=PATH):
    """A request that is for this engine, which may be out of rotation."""
    send(client, engine.users[0], path)
    return client.read_response()


def two_engines(harness, says=b"", **options):
    """Both have served; the first one hangs now."""
    engines = Engine(harness, says), Engine(harness)
    router = harness.router(*(engine.worker for engine in engines), **{**ON, **options})
    client = harness.client(router)
    served = [0, 0]
    for user in map(str, range(1000)):
        send(client, user)
        assert client.read_response().status == 200
        before, served = served, [len(engine.worker.posts) for engine in engines]
        engines[served[0] == before[0]].users.append(user)
        if min(served) >= 30:  # so their times are known
            break
    engines[0].hangs.set()
    return engines, router, client


def clients_at(harness, router, engine, count=2):
    """So many clients wait for it."""
    waiting = []
    for user in engine.users[:count]:
        waiting.append(harness.client(router))
        send(waiting[-1], user)
    eventually(lambda: engine.begun == count)
    return waiting


def serve_until(client, engine, condition):
    """It serves meanwhile."""

    def serves():
        assert ask(client, engine).status == 200
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


def test_an_answer_of_its_server_alone_is_no_sign_of_life(harness):
    """400 comes from the API server: one client's bad requests must not hide a hung engine."""
    (hung, other), router, client = two_engines(harness)
    waiting = clients_at(harness, router, hung)
    bad = harness.client(router)

    def found():
        assert ask(client, other).status == 200
        assert ask(bad, hung, "/v1/chat/completions").status == 400
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
