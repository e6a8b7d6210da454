"""Evictions on the wire: a long prompt of a lower class makes room at its worker, and is served later.

Which request is evicted, and how often, is tests/unit/admission/test_evictables.py.
"""

import json
import re
import threading
import time

import pytest

from tests.fakes.harness import QUIET, error_of
from tests.fakes.wire import PATIENCE, chunk, chunked, eventually, request, response
from vllm_router import _core

PATH = "/v1/completions"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVICT = "class batch evict=true"
# A worker takes many long prompts of the class, as none of them is read.
GATED = "class batch gate=gated kv_ceiling=0.95 evict=true"
SHORT = b'{"model":"m","prompt":"hi","stream":true}'


def long(size=3_000_000, stream=True):
    """A prompt of which more than 8,000 tokens are left for 20 s, of an engine whose pace is not known."""
    return json.dumps({"model": "m", "stream": stream, "prompt": "x" * size}).encode()


LONG = long()


class Engine:
    """A worker whose responses wait until the test lets their requests, by name, begin and end."""

    def __init__(self, harness):
        self.arrived, self.aborted = [], []
        self.lock, self.events = threading.Lock(), {}
        self.dies_of = None
        self.worker = harness.worker(self.answer)
        self.url = self.worker.url

    def event(self, name, what):
        with self.lock:
            return self.events.setdefault((name, what), threading.Event())

    def answer(self, connection, message):
        if message.method != "POST":
            connection.send(response(200, b"hello"))
            return
        name = message.get("x-who")
        self.arrived.append(name)
        until = time.monotonic() + PATIENCE
        while not self.event(name, "first").wait(0.005):
            if connection.readable(0):
                self.aborted.append(name)
                connection.ending()
                return
            assert time.monotonic() < until, f"the test never lets {name} begin"
        if name == self.dies_of:
            self.worker.die(connection)
            return
        connection.send(HEAD + chunk(b"data: 1\n\n"))
        assert self.event(name, "last").wait(PATIENCE), f"the test never lets {name} end"
        connection.send(chunked(b"data: [DONE]\n\n"))

    def serve(self, *names):
        for name in names:
            self.event(name, "first").set()
            self.event(name, "last").set()


def open_router(harness, *engines, lines=EVICT, **options):
    return harness.router(
        *engines,
        load_poll_interval_secs=0,
        admission_config=lines,
        trusted_addresses=["127.0.0.1"],
        **options,
    )


def ask(harness, router, of_class, who, body=SHORT):
    client = harness.client(router)
    client.send(request("POST", PATH, ("x-smg-priority", of_class), ("x-who", who), body=body))
    return client


def by_class(router, name):
    found = re.findall(
        rf'^vllm_router_{name}\{{class="(\w+)"\}} (\S+)$', router.server.metrics_text(), re.MULTILINE
    )
    numbers = {label: int(float(value)) for label, value in found}
    return [numbers[label] for label in ("interactive", "default", "batch")]


def waiting(router):
    return by_class(router, "class_queue_depth")


def evicted(router):
    return by_class(router, "evicted_requests_total")


def evict(harness, router, engine, **how):
    """The clients of a batch request that waits again, and of the one for which it was evicted."""
    batch = ask(harness, router, "batch", "batch", **{"body": LONG, **how})
    eventually(lambda: engine.arrived == ["batch"])
    chat = ask(harness, router, "interactive", "chat")
    eventually(lambda: engine.aborted == ["batch"] and engine.arrived == ["batch", "chat"])
    eventually(lambda: waiting(router) == [0, 0, 1])
    return batch, chat


def served(*clients):
    for client in clients:
        answer = client.read_response()
        assert (answer.status, answer.body) == (200, b"data: 1\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize("threads", [1, 3])
def test_an_evicted_request_is_served_before_those_that_wait(harness, threads):
    engine = Engine(harness)
    router = open_router(harness, engine, lines=f"{EVICT} queue_size=1", threads=threads)
    batch = ask(harness, router, "batch", "batch", LONG)
    eventually(lambda: engine.arrived == ["batch"])
    later = ask(harness, router, "batch", "later", LONG)
    eventually(lambda: waiting(router) == [0, 0, 1])
    chat = ask(harness, router, "interactive", "chat")
    eventually(lambda: engine.aborted == ["batch"])
    eventually(lambda: waiting(router) == [0, 0, 2])  # though the queue was full
    assert evicted(router) == [0, 0, 1]
    engine.serve("chat", "batch", "later")
    served(chat, batch, later)
    assert engine.arrived == ["batch", "chat", "batch", "later"]
    router.must_rest()
    assert waiting(router) == [0, 0, 0]


def test_one_that_wants_no_stream(harness):
    engine = Engine(harness)
    router = open_router(harness, engine)
    clients = evict(harness, router, engine, body=long(stream=False))
    engine.serve("chat", "batch")
    served(*clients)


def test_what_the_log_says(harness, written_to):
    _core.configure_log(log_format="json")
    try:
        stdout = written_to(1)
        engine = Engine(harness)
        router = open_router(harness, engine, access_log=True)
        clients = evict(harness, router, engine)
        engine.serve("chat", "batch")
        served(*clients)
        eventually(lambda: stdout().count("\n") >= 2)
        lines = {line["class"]: line for line in map(json.loads, stdout().splitlines()[:2])}
    finally:
        _core.configure_log()
    batch = lines["batch"]
    assert (batch["evictions"], batch["attempts"], batch["dispatch"]) == (1, 2, "queued")
    assert not {"retries", "failed", "error"} & batch.keys()
    assert 0 < batch["queue_ms"] <= batch["total_ms"]
    assert "evictions" not in lines["interactive"]


def test_it_is_no_failure_of_its_worker(harness):
    engine = Engine(harness)
    router = open_router(harness, engine, disable_retries=False, disable_circuit_breaker=False)
    clients = evict(harness, router, engine)
    engine.serve("chat", "batch")
    served(*clients)
    router.must_rest()
    text = router.server.metrics_text()
    assert not re.search(
        r'^vllm_router_worker_responses_total\{.*code="(none|5xx)".*\} [1-9]', text, re.MULTILINE
    )
    assert not re.search(r"^vllm_router_retries_total\S* [1-9]", text, re.MULTILINE)


def test_nothing_is_evicted_once_its_response_has_begun(harness):
    engine = Engine(harness)
    router = open_router(harness, engine)
    batch = ask(harness, router, "batch", "batch", LONG)
    engine.event("batch", "first").set()
    batch.read_head()
    chat = ask(harness, router, "interactive", "chat")
    engine.serve("chat")
    served(chat)
    engine.serve("batch")
    assert batch.read_to_last_chunk() == b"data: 1\n\ndata: [DONE]\n\n"
    assert (engine.aborted, evicted(router)) == ([], [0, 0, 0])


@pytest.mark.parametrize(
    ("lines", "of_class", "body"),
    [
        ("class batch", "batch", LONG),  # that class is not evicted
        (EVICT, "default", LONG),  # nor is this one
        (EVICT, "batch", long(30_000)),  # 7,500 tokens
        (EVICT, "batch", long(9 << 20)),  # of which only a window is held
    ],
    ids=["off", "another-class", "short", "not-kept"],
)
def test_what_stays_where_it_is(harness, lines, of_class, body):
    engine = Engine(harness)
    router = open_router(harness, engine, lines=lines)
    stays = ask(harness, router, of_class, "stays", body)
    eventually(lambda: engine.arrived == ["stays"])
    chat = ask(harness, router, "interactive", "chat")
    engine.serve("chat")
    served(chat)
    engine.serve("stays")
    served(stays)
    assert (engine.aborted, evicted(router)) == ([], [0, 0, 0])
    assert engine.arrived == ["stays", "chat"]


def test_a_worker_has_one_eviction_a_second(harness):
    engine = Engine(harness)
    router = open_router(harness, engine, lines=GATED)
    clients = [ask(harness, router, "batch", f"batch{number}", LONG) for number in range(2)]
    eventually(lambda: len(engine.arrived) == 2)
    clients += [ask(harness, router, "interactive", "chat") for _ in range(4)]
    eventually(lambda: engine.arrived.count("chat") == 4)
    eventually(lambda: len(engine.aborted) == 1)
    assert evicted(router) == [0, 0, 1]
    engine.serve("chat", "batch0", "batch1")
    served(*clients)
    assert evicted(router) == [0, 0, 1]


def test_nobody_is_evicted_a_third_time(harness):
    engine = Engine(harness)
    router = open_router(harness, engine)
    engine.serve("chat")
    batch = ask(harness, router, "batch", "batch", LONG)
    chat = harness.client(router)

    def chats_until(condition):
        until = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < until
            eventually(lambda: engine.arrived.count("batch") == len(engine.aborted) + 1)
            chat.send(request("POST", PATH, ("x-smg-priority", "interactive"), ("x-who", "chat"), body=SHORT))
            served(chat)

    chats_until(lambda: len(engine.aborted) == 2)
    second = time.monotonic()
    chats_until(lambda: time.monotonic() > second + 1.5)
    engine.serve("batch")
    served(batch)
    assert engine.aborted == ["batch"] * 2
    assert evicted(router) == [0, 0, 2]


def test_a_client_that_leaves_gives_up_its_place(harness):
    engine = Engine(harness)
    router = open_router(harness, engine)
    batch, chat = evict(harness, router, engine)
    batch.reset()
    eventually(lambda: waiting(router) == [0, 0, 0])
    engine.serve("chat")
    served(chat)
    assert engine.arrived == ["batch", "chat"]


def test_its_wait_has_an_end(harness):
    engine = Engine(harness)
    router = open_router(harness, engine, lines=f"{EVICT} queue_size=0 queue_timeout_ms=300")
    batch = ask(harness, router, "batch", "batch", LONG)
    eventually(lambda: engine.arrived == ["batch"])
    chat = ask(harness, router, "interactive", "chat")
    answer = batch.read_response()
    assert (answer.status, error_of(answer)["code"], answer.get("retry-after")) == (503, "evicted", "1")
    assert router.loads() == [1]
    engine.serve("chat")
    served(chat)


def test_it_goes_to_whatever_worker_has_room(harness):
    engine, fresh = Engine(harness), Engine(harness)
    router = open_router(harness, engine)
    batch, chat = evict(harness, router, engine)
    router.core.add_worker(fresh.url)
    eventually(lambda: fresh.arrived == ["batch"])
    fresh.serve("batch")
    engine.serve("chat")
    served(batch, chat)


def test_its_worker_dies_meanwhile(harness):
    engine = Engine(harness)
    engine.dies_of = "chat"
    router = open_router(harness, engine)
    batch, chat = evict(harness, router, engine)
    engine.serve("chat")
    assert chat.read_response().status == 502
    answer = batch.read_response()
    assert error_of(answer)["code"] in ("worker_unreachable", "no_workers")
    router.must_rest()
    assert waiting(router) == [0, 0, 0]


def test_who_waits_goes_on_when_there_are_no_classes_any_more(harness):
    engine = Engine(harness)
    router = open_router(harness, engine)
    clients = evict(harness, router, engine)
    settings = {name: value for name, value in QUIET.items() if name in _core.Server.live_option_names}
    settings |= {"load_poll_interval_secs": 0, "admission_config": ""}
    router.server.apply(settings, None, 0.0, 0.0, False)
    eventually(lambda: engine.arrived == ["batch", "chat", "batch"])
    engine.serve("chat", "batch")
    served(*clients)


def test_over_all_threads_nobody_is_lost(harness):
    engines = [Engine(harness) for _ in range(4)]
    router = open_router(harness, *engines, lines=GATED, threads=3)
    names = [f"batch{number}" for number in range(8)]
    clients = [ask(harness, router, "batch", name, LONG) for name in names]
    eventually(lambda: sum(len(engine.arrived) for engine in engines) == 8)
    clients += [ask(harness, router, "interactive", "chat") for _ in range(8)]
    eventually(lambda: sum(engine.arrived.count("chat") for engine in engines) == 8)
    eventually(lambda: sum(len(engine.aborted) for engine in engines) == evicted(router)[2] >= 1)
    for engine in engines:
        engine.serve("chat", *names)
    served(*clients)
    router.must_rest()
    assert waiting(router) == [0, 0, 0]
