"""Every fault that a worker or a client may have, and what each side, breaker, load and retry see of it.

The rows follow docs/explanation/failures.md. A worker's fault is met twice: alone, where the client sees what
can be seen of it, and beside a healthy worker with retries on, where the client sees nothing if it was
`saved`. The breaker counts in both (it never opens here), and the harness checks that all load is returned.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import PATIENCE, EndedEarlyError, chunk, chunked, eventually, request, response

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SSE_HEAD = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PATH = "/v1/completions"
RETRIES = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}
STREAMED = bytes(200_000)  # sent while it arrives, and kept
BIG = bytes(2_000_000)


def says(*pieces: bytes, then: str = "wait") -> Callable:
    """Reads the request, says this, and then waits for the router to leave, closes, or resets."""

    def script(connection):
        while True:
            connection.read_request()
            for piece in pieces:
                connection.send(piece)
            if then != "wait":
                getattr(connection, then)()
                return

    return script


def reads_head_then(how: str, *pieces: bytes) -> Callable:
    def script(connection):
        connection.read_request_head()
        for piece in pieces:
            connection.send(piece)
        getattr(connection, how)()

    return script


def dribbles(data: bytes) -> Callable:
    def script(connection):
        while True:
            connection.read_request()
            for at in range(len(data)):
                connection.send(data[at : at + 1])

    return script


@dataclass
class Fault:
    name: str
    script: Callable | str  # of a worker, or the name of a port
    client: str  # what is seen alone: "STATUS code", "STATUS", "cut", "whole"
    breaker: str  # "failure", "success", "neutral", or "success failure" when a good answer broke off
    saved: bool  # by a retry
    body: bytes = b"{}"
    options: dict[str, Any] = field(default_factory=dict)


FAULTS = [
    Fault("refused", "refusing_port", "502 worker_unreachable", "failure", True),
    Fault(
        "lets nobody in",
        "silent_port",
        "504 connect_timeout",
        "failure",
        True,
        options={"connect_timeout_secs": 0.1},
    ),
    Fault("no such name", "http://" + "a" * 64 + ":80", "502 worker_unreachable", "failure", True),
    Fault("accepts and closes", lambda connection: connection.close(), "502 worker_closed", "failure", True),
    Fault("resets after the head", reads_head_then("reset"), "502 worker_closed", "failure", True),
    Fault(
        "resets amid the body", reads_head_then("reset"), "502 worker_closed", "failure", True, body=STREAMED
    ),
    Fault(
        "ends inside the status line",
        says(b"HTTP/1.1 20", then="close"),
        "502 worker_closed",
        "failure",
        True,
    ),
    Fault(
        "ends inside the head", says(OK + b"Content-Le", then="close"), "502 worker_closed", "failure", True
    ),
    Fault(
        "resets inside the head", says(OK + b"Content-Le", then="reset"), "502 worker_closed", "failure", True
    ),
    Fault(
        "a head that never ends", says(OK + b"x: y\r\n" * 11_000), "502 worker_bad_answer", "failure", True
    ),
    Fault("no HTTP at all", says(b"SSH-2.0-OpenSSH\r\n"), "502 worker_bad_answer", "failure", True),
    Fault(
        "switches protocols unasked",
        says(b"HTTP/1.1 101 S\r\n\r\n"),
        "502 worker_bad_answer",
        "failure",
        True,
    ),
    Fault(
        "1,001 times 100", says(b"HTTP/1.1 100 C\r\n\r\n" * 1001), "502 worker_bad_answer", "failure", True
    ),
    Fault(
        "silent", says(), "504 first_byte_timeout", "failure", True, options={"first_byte_timeout_secs": 0.1}
    ),
    Fault("500", says(response(500, b"no")), "500", "failure", True),
    Fault("503", says(response(503, b"no")), "503", "failure", True),
    Fault("503 with Retry-After", says(response(503, b"no", ("Retry-After", "9"))), "503", "neutral", True),
    Fault("429", says(response(429, b"no")), "429", "neutral", True),
    Fault("404", says(response(404, b"no")), "404", "success", False),
    Fault(
        "an early 413, then a reset",
        reads_head_then("reset", response(413, b"no")),
        "413",
        "success",
        False,
        body=STREAMED,
    ),
    Fault("a head byte by byte", dribbles(response(200, b"hello")), "whole", "success", False),
    Fault("a body byte by byte", dribbles(CHUNKED + chunked(b"hello")), "whole", "success", False),
    Fault("bytes behind the end", says(response(200, b"hello") + b"more"), "whole", "success", False),
    Fault("closes after the end", says(response(200, b"hello"), then="close"), "whole", "success", False),
    Fault(
        "too short a body",
        says(OK + b"Content-Length: 9\r\n\r\nhello", then="close"),
        "cut",
        "success failure",
        False,
    ),
    Fault("a bad chunk size", says(CHUNKED + chunk(b"hello") + b"xyz\r\n"), "cut", "success failure", False),
    Fault(
        "resets amid a chunk", says(CHUNKED + b"9\r\nhello", then="reset"), "cut", "success failure", False
    ),
    Fault(
        "ends between chunks", says(CHUNKED + chunk(b"hello"), then="close"), "cut", "success failure", False
    ),
    Fault(
        "stalls amid a stream",
        says(SSE_HEAD + chunk(b"data: 1\n\n")),
        "cut",
        "success failure",
        False,
        options={"stream_idle_timeout_secs": 0.1},
    ),
    Fault(
        "an error event in a stream",
        says(SSE_HEAD + chunked(b'data: {"error": {"code": 500}}\n\n', b"data: [DONE]\n\n")),
        "whole",
        "success failure",
        False,
    ),
]
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


def place(harness, fault):
    if callable(fault.script):
        return harness.worker(script=fault.script)
    return getattr(harness, fault.script)() if hasattr(harness, fault.script) else fault.script


def outcomes(router):
    """What the breakers have heard, summed over the workers."""
    heard = {"success": 0, "failure": 0}
    for line in router.server.metrics_text().splitlines():
        if line.startswith("vllm_router_cb_outcomes_total"):
            heard[line.split('outcome="')[1].split('"')[0]] += int(float(line.split()[-1]))
    return heard


def must_have_heard(router, expected, more=0):
    words = expected.split()
    wanted = {word: words.count(word) for word in ("success", "failure")}
    wanted["success"] += more
    eventually(lambda: outcomes(router) == wanted, f"the breakers heard {outcomes(router)}, not {wanted}")


def see(client, body):
    """What a client sees: "STATUS code", "STATUS", "whole" or "cut"."""
    client.send(request("POST", PATH, body=body))
    try:
        message = client.read_response()
    except (EndedEarlyError, ConnectionError):
        return "cut"
    if message.status == 200:
        return "whole"
    ours = b'"error":{"message"' in message.body
    return f"{message.status} {error_of(message)['code']}" if ours else str(message.status)


@each_fault
def test_alone_the_client_sees_it(harness, fault):
    router = harness.router(place(harness, fault), **fault.options)
    assert see(harness.client(router), fault.body) == fault.client
    must_have_heard(router, fault.breaker)
    router.wait_for_load(0)


@each_fault
def test_beside_a_well_worker_a_retry_saves_what_may_be_saved(harness, fault):
    healthy = harness.worker()
    router = harness.router(place(harness, fault), healthy, **fault.options, **RETRIES)
    assert see(harness.client(router), fault.body) == ("whole" if fault.saved else fault.client)
    assert len(healthy.requests) == fault.saved
    must_have_heard(router, fault.breaker, more=fault.saved)


# ---- through a relay that spoils the connection


def test_a_connection_that_pauses_is_waited_for(harness):
    worker = harness.worker(
        lambda connection, _: connection.send(SSE_HEAD + chunked(b"data: 1\n\n", b"data: [DONE]\n\n"))
    )
    relay = harness.relay(worker)
    router = harness.router(relay)
    client = harness.client(router)
    relay.pause()
    client.send(request("POST", PATH, body=b"{}"))
    worker.wait_for_requests(1)
    assert not client.readable(0.2)
    relay.resume()
    assert client.read_response().body.endswith(b"[DONE]\n\n")
    must_have_heard(router, "success")


def test_answers_in_single_bytes_arrive_whole(harness):
    worker = harness.worker(lambda connection, message: connection.send(response(200, message.body)))
    relay = harness.relay(worker)
    relay.slice = 1
    router = harness.router(relay)
    client = harness.client(router)
    assert client.ask("POST", PATH, body=b"x" * 3000).body == b"x" * 3000


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("when", ["before the head", "in the stream"])
def test_a_connection_that_is_cut(harness, how, when):
    def answer(connection, _message):
        if when == "in the stream":
            connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        connection.ending()

    worker = harness.worker(answer)
    relay = harness.relay(worker)
    router = harness.router(relay)
    client = harness.client(router)
    client.send(request("POST", PATH, body=b"{}"))
    worker.wait_for_requests(1)
    if when == "in the stream":
        assert client.read_head().status == 200
        client.read_chunk()
    relay.cut(how)
    if when == "in the stream":
        assert not client.read_to_end().endswith(b"0\r\n\r\n")
        must_have_heard(router, "success failure")
    else:
        assert error_of(client.read_response())["code"] == "worker_closed"
        must_have_heard(router, "failure")


def test_a_half_closed_connection_counts_as_ended(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    relay = harness.relay(worker)
    router = harness.router(relay)
    client = harness.client(router)
    client.send(request("POST", PATH, body=b"{}"))
    worker.wait_for_requests(1)
    relay.half_close()
    assert error_of(client.read_response())["code"] == "worker_closed"


@pytest.mark.parametrize("seed", range(20))
def test_a_garbled_answer_never_passes_for_another(harness, seed):
    """A flipped byte in the head or framing is a 502 or a cut; in the body nobody can know."""
    dice = random.Random(seed)
    whole = CHUNKED + chunked(b"hello", b"world")
    at = dice.randrange(len(whole))
    flipped = whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :]
    worker = harness.worker(lambda connection, _: connection.send(whole))
    relay = harness.relay(worker)
    relay.garble = lambda _data: flipped
    router = harness.router(relay, first_byte_timeout_secs=0.3, stream_idle_timeout_secs=0.3)
    seen = see(harness.client(router), b"{}")
    told = f"seed {seed}: byte {at} of {whole!r} became {flipped[at : at + 1]!r}, and the client saw {seen}"
    if at >= len(CHUNKED) and whole[at : at + 1].isalpha():
        assert seen == "whole", told
    elif at >= len(CHUNKED):
        assert seen == "cut", told
    else:
        assert seen in ("whole", "cut") or seen[:1] in "2345", told


# ---- clients: never the worker's fault


def leaving(how: str) -> Callable:
    return lambda client: getattr(client, how)()


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize("state", ["head", "body", "awaiting", "streaming"])
def test_a_client_that_leaves_says_nothing_about_the_worker(harness, how, state):
    def answer(connection, _message):
        if state == "streaming":
            connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        connection.ending()

    worker = harness.worker(answer)
    router = harness.router(worker, **RETRIES)
    client = harness.client(router)
    whole = request("POST", PATH, body=b"{}")
    client.send(whole[: {"head": 20, "body": len(whole) - 1}.get(state, len(whole))])
    if state in ("awaiting", "streaming"):
        worker.wait_for_requests(1)
    if state == "streaming":
        client.read_head()
    leaving(how)(client)
    router.must_rest()
    must_have_heard(router, "success" if state == "streaming" else "neutral")
    assert len(worker.requests) == (state in ("awaiting", "streaming"))


def test_a_client_that_stops_reading_says_nothing_about_the_worker(harness):
    def flood(connection, _message):
        connection.send(CHUNKED)
        while True:
            connection.send(chunk(bytes(60_000)))

    router = harness.router(harness.worker(flood), client_write_timeout_secs=0.1)
    client = harness.client(router, receive_buffer=4096)
    client.send(request("POST", PATH, body=b"{}"))
    router.wait_for_load(1)
    router.wait_for_load(0)
    must_have_heard(router, "success")


def test_a_client_that_pipelines_a_hundred_and_leaves(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker, **RETRIES)
    client = harness.client(router)
    client.send(request("POST", PATH, body=b"{}") * 100)
    worker.wait_for_requests(1)
    client.close()
    router.must_rest()
    must_have_heard(router, "neutral")
    assert len(worker.requests) == 1


# ---- storms


def test_a_worker_that_dies_with_many_streams_harms_only_those(harness):
    killed = threading.Event()

    def stream(connection, _message):
        connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        killed.wait(PATIENCE)
        connection.reset()  # by its own thread: a socket is not closed while another one reads it

    dying, healthy = harness.worker(stream), harness.worker()
    router = harness.router(dying, healthy, **RETRIES)
    clients = [harness.client(router) for _ in range(100)]
    for client in clients:
        client.send(request("POST", PATH, body=b"{}"))
    streams = [client for client in clients if client.read_head().get("transfer-encoding") == "chunked"]
    assert len(streams) == 50
    killed.set()
    for client in streams:
        assert not client.read_to_end().endswith(b"0\r\n\r\n")
    router.must_rest()
    must_have_heard(router, " ".join(["success"] * 100 + ["failure"] * 50))


def test_a_storm_of_clients_that_leave(harness):
    worker = harness.worker(lambda connection, _: connection.send(SSE_HEAD) or connection.ending())
    router = harness.router(worker, threads=2, **RETRIES)
    clients = [harness.client(router) for _ in range(200)]
    for client in clients:
        client.send(request("POST", PATH, body=b"{}"))
    worker.wait_for_requests(200)
    for client in clients:
        client.close()
    router.must_rest()
    assert outcomes(router)["failure"] == 0
    assert len(worker.requests) == 200


# ---- one of four


def test_one_of_four_workers_killed_under_load_and_back(harness):
    """No client sees an error; the dead one is left alone; back again, its share grows to its whole."""
    counts = {}

    def answer(connection, _message):
        counts[connection.worker.port] = counts.get(connection.worker.port, 0) + 1
        connection.send(response(200, b"hello"))

    workers = [harness.worker(answer) for _ in range(4)]
    router = harness.router(
        *workers,
        policy="round_robin",
        threads=2,
        disable_circuit_breaker=False,
        health_check_interval_secs=0.1,
        slow_start_secs=2,
        **RETRIES,
    )
    stop = threading.Event()
    wrong: list[str] = []

    def load():
        client = router.connect()
        try:
            while not stop.is_set():
                answer = client.ask("POST", PATH, body=b"{}")
                if (answer.status, answer.body) != (200, b"hello"):
                    wrong.append(f"{answer.status} {answer.body!r}")
        except Exception as error:
            wrong.append(repr(error))
        finally:
            client.close()

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: sum(counts.values()) > 400 and len(counts) == 4)
        dead = workers[0]
        dead.stop()
        eventually(lambda: not router.core.workers[0].healthy, "the dead worker was never found out")
        before = sum(counts.values())
        eventually(lambda: sum(counts.values()) > before + 200)
        back = harness.worker(answer, port=dead.port)
        eventually(lambda: router.core.workers[0].healthy, "the worker never came back")
        warmth = f'vllm_router_worker_slow_start_factor{{worker="{back.url}"}} 1\n'
        eventually(lambda: warmth in router.server.metrics_text(), "its share never grew to its whole")

        def has_its_share():
            """Of 400 requests. On a busy machine a health check may fail, and its share begins anew."""
            mark, whole = len(back.requests), sum(counts.values())
            eventually(lambda: sum(counts.values()) > whole + 400)
            return (len(back.requests) - mark) / (sum(counts.values()) - whole) > 0.15

        eventually(has_its_share, "a quarter is its due")
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert wrong == []


# ---- slow clients


@pytest.mark.parametrize("state", ["head", "body"])
def test_a_thousand_clients_that_dribble_are_shed_while_another_is_served(harness, state):
    """None of them holds a seat or memory; their time is up whatever they send."""
    worker = harness.worker()
    router = harness.router(
        worker,
        policy="consistent_hash",
        max_concurrent_requests=4,
        client_head_timeout_secs=1,
        client_body_timeout_secs=1,
    )
    good = harness.client(router)
    slow = [harness.client(router) for _ in range(1000)]
    whole = request("POST", PATH, ("X-Slow", "1"), body=bytes(1000))
    begun = 20 if state == "head" else len(whole) - 999
    for client in slow:
        client.send(whole[:begun])
    shed = f'http_responses_total{{route="{"other" if state == "head" else PATH}",code="408"}} 1000\n'
    served = 0
    dribbled = begun

    def one_round():
        nonlocal served, dribbled
        assert see(good, b"{}") == "whole"
        served += 1
        if state == "head" and dribbled < len(whole) - 1100:
            dribbled += 1
            for client in slow:
                client.send_what_fits(whole[dribbled - 1 : dribbled])
        return shed in router.server.metrics_text()

    eventually(one_round)
    assert served >= 3
    assert len(worker.requests) == served
    for client in slow:
        assert client.read_response().status == 408
        client.close()
    eventually(lambda: "vllm_router_client_connections 1\n" in router.server.metrics_text())


def test_no_more_clients_come_in_than_may_and_the_rest_is_closed_at_once(harness):
    router = harness.router(harness.worker(), max_connections=50, client_head_timeout_secs=100)
    slow = [harness.client(router) for _ in range(50)]
    for client in slow:
        client.send(request("POST", PATH, body=b"{}")[:-1])
        client.wait_until_read()
    for _ in range(20):
        assert harness.client(router).ending() in ("eof", "reset")
    slow[0].close()
    eventually(lambda: "vllm_router_client_connections 49\n" in router.server.metrics_text())
    assert see(harness.client(router), b"{}") == "whole"
