"""Row 9: workers are replaced under load, and no request is lost.

Each worker rejects what is above its capacity, as engines do, and the new ones are ready one after the
other. Four have room for all clients, and two have not.
"""

import json
import os
import threading

import pytest

from tests.fakes.wire import eventually, response
from vllm_router.discovery import WorkerSpec

CHECKED = {"health_check_interval_secs": 0.05}
CLIENTS = 12
CAPACITY = 4  # of a worker
REQUESTS = int(os.environ.get("VLLM_ROUTER_TEST_ROLL_OUT", "300"))  # in all


class Engine:
    def __init__(self, harness, ready=True):
        self.ready = threading.Event()
        if ready:
            self.ready.set()
        self.open = 0
        self.rejected = 0
        self.lock = threading.Lock()
        self.worker = harness.worker(self.answer)
        self.url = self.worker.url

    def answer(self, connection, message):
        if message.method == "GET":
            connection.send(response(200 if self.ready.is_set() else 503, b""))
            return
        with self.lock:
            self.open += 1
            fits = self.open <= CAPACITY
            self.rejected += not fits
        threading.Event().wait(0.002)  # it computes
        with self.lock:
            self.open -= 1
        connection.send(response(200 if fits else 503, b"hello"))


class Load:
    """Clients that send one request after the other."""

    def __init__(self, router):
        self.router = router
        self.stop = threading.Event()
        self.statuses = []  # list.append is atomic
        self.threads = [threading.Thread(target=self.run) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self):
        client = self.router.connect()
        while not self.stop.is_set():
            self.statuses.append(client.ask("POST", "/v1/completions", body=b"{}").status)
        client.close()

    def wait_for(self, more):
        enough = len(self.statuses) + more
        eventually(lambda: len(self.statuses) >= enough, "the clients stand still", patience=100)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        return {status: self.statuses.count(status) for status in set(self.statuses)}


def declare(router, source, engines):
    return router.core._reconcile(source, [WorkerSpec(one.url) for one in engines], True, [])


def serving(client, engines):
    report = json.loads(client.ask("GET", "/admin/discovery").body)
    states = {worker["url"]: worker["state"] for worker in report["workers"]}
    return {states.get(one.url) for one in engines}


@pytest.mark.parametrize("source", ["file", "static", "dns"])
@pytest.mark.parametrize("replaced", [4, 3, 1])
@pytest.mark.parametrize(
    "options",
    [{}, {"routing": {"max_worker_requests": CAPACITY}, "queue_size": 1}],
    ids=["engines reject", "bounded by the router"],
)
def test_no_request_is_lost_while_workers_are_replaced(harness, source, replaced, options):
    old = [Engine(harness) for _ in range(4)]
    new = [Engine(harness, ready=number == 0) for number in range(replaced)]
    router = harness.router(policy="least_load", **CHECKED, **options)
    client = harness.client(router)
    declare(router, source, old)
    eventually(lambda: serving(client, old) == {"serving"})
    load = Load(router)
    share = REQUESTS // (2 + replaced)
    load.wait_for(share)
    declare(router, source, [*old[replaced:], *new])
    for engine in new:
        engine.ready.set()
        eventually(lambda engine=engine: serving(client, [engine]) == {"serving"})
        load.wait_for(share)
    if source == "dns":
        declare(router, source, [*old[replaced:], *new])
    eventually(lambda: serving(client, old[:replaced]) == {None}, "the old ones never left")
    load.wait_for(share)
    assert load.end().keys() == {200}
    assert sum(engine.rejected for engine in [*old, *new]) == 0


@pytest.mark.parametrize("policy", ["round_robin", "auto", "cache_aware"])
def test_no_request_is_lost_when_all_new_ones_are_ready_at_once(harness, policy):
    """Row 9: with engines that take what they get; a request must not meet a fleet without workers."""
    router = harness.router(policy=policy, **CHECKED)
    client = harness.client(router)
    fleets = [[harness.worker() for _ in range(4)] for _ in range(3)]
    load = None
    for fleet in fleets:
        declare(router, "file", fleet)
        eventually(lambda fleet=fleet: serving(client, fleet) == {"serving"})
        load = load or Load(router)
        load.wait_for(REQUESTS // 6)
    assert load.end().keys() == {200}


def test_a_roll_back_finds_the_workers_as_they_were(harness):
    """Row 9: a list that comes while others are held."""
    old = [harness.worker(), harness.worker()]
    new = [Engine(harness), Engine(harness, ready=False)]
    router = harness.router(policy="least_load", **CHECKED)
    client = harness.client(router)
    declare(router, "file", old)
    eventually(lambda: serving(client, old) == {"serving"})
    for _ in range(4):
        client.ask("POST", "/v1/completions", body=b"{}")
    declare(router, "file", new)
    eventually(lambda: serving(client, new[:1]) == {"serving"})
    workers = json.loads(client.ask("GET", "/workers").body)["workers"]
    assert [worker["url"] for worker in workers if worker.get("held")] == [max(one.url for one in old)]
    declare(router, "file", old)
    eventually(lambda: serving(client, new) == {None})
    assert serving(client, old) == {"serving"}
    workers = json.loads(client.ask("GET", "/workers").body)["workers"]
    assert not any("held" in worker for worker in workers)


@pytest.fixture
def says(capfd):
    """Waits until the log says it."""
    said = []

    def says(words):
        def is_said():
            said.append(capfd.readouterr().err)
            return words in "".join(said)

        eventually(is_said, f"nobody said: {words}")

    return says


def test_it_is_said_when_workers_stay_and_when_they_leave(harness, says):
    old, new = [harness.worker()], [Engine(harness, ready=False)]
    extra = harness.worker()
    router = harness.router(policy="least_load", **CHECKED)
    client = harness.client(router)
    declare(router, "file", [*old, extra])
    eventually(lambda: serving(client, [*old, extra]) == {"serving"})
    declare(router, "file", [extra, *new])
    eventually(lambda: serving(client, old) == {"held"})
    new[0].ready.set()
    eventually(lambda: serving(client, old) == {None})
    says(f"{old[0].url}, which file leaves out, stay until as many of its new workers have passed")
    says(f"{old[0].url}, which file left out, leave: no worker is awaited for them any more")


def test_it_is_said_when_workers_leave_although_others_are_not_ready(harness, says):
    old, new = [harness.worker()], [Engine(harness, ready=False)]
    extra = harness.worker()
    router = harness.router(policy="least_load", **CHECKED, routing={"discovery_hold_secs": 0.2})
    client = harness.client(router)
    declare(router, "file", [*old, extra])
    eventually(lambda: serving(client, [*old, extra]) == {"serving"})
    declare(router, "file", [extra, *new])
    eventually(lambda: serving(client, old) == {None})
    assert serving(client, new) == {"pending"}
    says(f"fleet: {old[0].url}, which file left out, leave although new workers of it have not passed")


def test_a_worker_that_dies_while_it_is_held_leaves_at_once(harness):
    old, new = [harness.worker()], [Engine(harness, ready=False)]
    extra = harness.worker()
    router = harness.router(policy="least_load", health_failure_threshold=1, **CHECKED)
    client = harness.client(router)
    declare(router, "file", [*old, extra])
    eventually(lambda: serving(client, [*old, extra]) == {"serving"})
    declare(router, "file", [extra, *new])
    assert serving(client, old) == {"held"}
    old[0].stop()
    eventually(lambda: serving(client, old) == {None})
    assert {client.ask("POST", "/v1/completions", body=b"{}").status for _ in range(4)} == {200}
