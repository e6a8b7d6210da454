"""Thousands of exchanges, many of which go wrong at random: nothing is mixed up, nothing is left behind.

What a worker does is written in the request's path, so a client knows what it must see, whichever it gets.
"""

import random
import ssl
import threading
from collections import Counter

import pytest

from tests.fakes.authority import Authority
from tests.fakes.wire import EndedEarlyError, anonymous_memory, chunk, chunked, request, response

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
STREAM = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def body_of(number: int, size: int) -> bytes:
    return (b"%d " % number) * (size // 8 + 1)


def behave(connection, message):
    """/kind/number/size"""
    if message.target == "/health":
        connection.send(response(200, b""))
        return
    _, kind, number, size = message.target.split("/")
    body = body_of(int(number), int(size))
    if kind == "echo":
        connection.send(response(200, message.body))
    elif kind == "length":
        connection.send(response(200, body))
    elif kind == "chunked":
        connection.send(CHUNKED + chunked(body, b"!"))
    elif kind == "stream":
        connection.send(STREAM)
        for at in range(0, len(body), 100):
            connection.send(chunk(body[at : at + 100]))
        connection.send(chunked())
    elif kind == "until-close":
        connection.send(OK + b"\r\n" + body)
        connection.end()
    elif kind == "bye":
        connection.send(response(200, body, ("Connection", "close")))
        connection.close()
    elif kind == "quiet-bye":
        connection.send(response(200, body))
        connection.close()
    elif kind == "reset":
        connection.reset()
    elif kind == "close":
        connection.close()
    elif kind == "garbage":
        connection.send(b"\0" * 100)
        connection.ending()
    elif kind == "short":
        connection.send(OK + b"Content-Length: %d\r\n\r\n" % (len(body) + 1) + body)
        connection.close()
    elif kind == "broken-chunks":
        connection.send(CHUNKED + chunk(body) + b"zz\r\n")
        connection.ending()
    elif kind == "cut-chunks":
        connection.send(CHUNKED + chunk(body))
        connection.reset()
    elif kind == "surplus":
        connection.send(response(200, body) + b"surplus")
    else:
        raise AssertionError(kind)


WHOLE = ["echo", "length", "chunked", "stream", "until-close", "bye", "quiet-bye", "surplus"]
FAILING = ["reset", "close", "garbage"]  # 502
CUT = ["short", "broken-chunks", "cut-chunks"]  # 200, but never whole


class Asker(threading.Thread):
    """A client that sends requests of all kinds and sometimes leaves in the middle."""

    def __init__(self, router, seed: int, count: int, tls: ssl.SSLContext | None):
        super().__init__()
        self.tls = tls
        self.router = router
        self.rng = random.Random(seed)
        self.count = count
        self.seen: Counter[str] = Counter()
        self.error: BaseException | None = None

    def run(self):
        client = self.router.connect(tls=self.tls)
        try:
            for number in range(self.count):
                if client is None or self.rng.random() < 0.02:
                    if client is not None:
                        client.close()
                    client = self.router.connect(tls=self.tls)
                if not self.ask(client, number):
                    client.close()
                    client = None
        except BaseException as error:
            self.error = error
        finally:
            if client is not None:
                client.close()

    def ask(self, client, number) -> bool:
        """Whether the connection goes on."""
        rng = self.rng
        kind = rng.choice(rng.choices([WHOLE, FAILING, CUT], [90, 5, 5])[0])
        size = rng.choice([0, 10, 500, 5_000, 100_000])
        sent = rng.randbytes(rng.choice([0, 10, 3_000, 80_000]))
        path = f"/{kind}/{number}/{size}"
        if rng.random() < 0.5:
            whole = request("POST", path, body=sent)
        else:
            at = rng.randint(0, len(sent))
            pieces = [piece for piece in (sent[:at], sent[at:]) if piece]
            whole = request("POST", path, ("Transfer-Encoding", "chunked")) + chunked(*pieces)
        if rng.random() < 0.05:  # leaves while it asks
            client.send(whole[: rng.randint(1, len(whole))])
            return self.leave(client)
        client.send(whole)
        if rng.random() < 0.05:  # leaves while it is answered
            client.readable(rng.choice([0, 0.001, 0.01]))
            return self.leave(client)
        self.seen[kind] += 1
        try:
            answer = client.read_response()
        except (EndedEarlyError, ConnectionResetError, ssl.SSLError):
            assert kind in CUT, kind
            return False
        assert kind not in CUT, kind
        if kind in FAILING:
            assert answer.status == 502, (kind, answer)
        else:
            assert answer.status == 200, (kind, answer)
            expected = {"echo": sent, "chunked": body_of(number, size) + b"!"}.get(
                kind, body_of(number, size)
            )
            assert answer.body == expected, kind
        return answer.get("connection") != "close"

    def leave(self, client) -> bool:
        if self.rng.random() < 0.5:
            client.reset()
        self.seen["left"] += 1
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "tls"), [("least_load", False), ("consistent_hash", False), ("least_load", True)]
)
def test_thousands_of_exchanges_that_go_well_and_badly_leave_nothing_behind(
    harness, seed, policy, tls, tmp_path
):
    shown, trusting, serving = {}, None, None
    if tls:  # with clients and with workers
        authority = Authority(tmp_path)
        files = authority.certify("localhost")
        shown = {"tls_cert_path": files.cert, "tls_key_path": files.key, "worker_ca_file": authority.path}
        trusting, serving = authority.client(), authority.server("127.0.0.1")
    workers = [harness.worker(behave, tls=serving) for _ in range(4)]
    router = harness.router(*workers, policy=policy, threads=2, health_check_interval_secs=0.05, **shown)
    askers = [Asker(router, seed + index, 400, trusting) for index in range(8)]
    stop = threading.Event()

    def change_the_fleet():
        rng = random.Random(seed)
        while not stop.wait(0.01):
            worker = rng.choice(workers[1:])  # the first always stays
            router.core.drain_worker(worker.url)
            router.core.remove_worker(worker.url)
            router.core.add_worker(worker.url)

    changing = threading.Thread(target=change_the_fleet)
    changing.start()
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(100)
    stop.set()
    changing.join()
    for asker in askers:
        if asker.error is not None:
            raise asker.error
    seen: Counter[str] = sum((asker.seen for asker in askers), Counter())
    assert set(seen) == {*WHOLE, *FAILING, *CUT, "left"}
    router.must_rest()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_exchanges(harness):
    def answer(connection, message):
        for record in (connection.received, connection.requests, worker.requests):
            record.clear()
        if message.target == "/drip":
            connection.send(STREAM + chunk(b"data: 1\n\n"))
            connection.ending()
            worker.forget(connection)
        else:
            connection.send(response(200, message.body))

    worker = harness.worker(answer)
    router = harness.router(worker)
    bodies = [b"", b"x" * 1000, b"y" * 60_000]

    def ask(count):
        client = router.connect()
        for number in range(count):
            body = bodies[number % 3]
            assert client.ask("POST", "/x", body=body).body == body
            client.received.clear()
            if number % 10 == 0:
                leaving = router.connect()
                leaving.send(request("GET", "/drip"))
                leaving.read_head()
                leaving.close()
        client.close()
        router.must_rest()

    ask(300)
    before = anonymous_memory()
    ask(1500)
    assert anonymous_memory() - before < 4 << 20
