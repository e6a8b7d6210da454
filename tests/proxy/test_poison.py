"""Requests that crash the worker that serves them, and what one of them may cost."""

import contextlib
import socket
import threading

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import eventually, request, response

ON = {
    "disable_retries": False,
    "retry_initial_backoff_ms": 1,
    "retry_max_backoff_ms": 5,
    "health_check_interval_secs": 3600,  # checks come from suspicion alone
}
PATH = "/v1/completions"


def fragile(harness, **options):
    """A worker whose process dies of the word "poison"."""

    def answer(connection, message):
        if b"poison" in message.body:
            worker.dead = True
            worker.die(connection)
        else:
            connection.send(response(200, b"hello"))

    worker = harness.worker(answer, **options)
    worker.dead = False
    return worker


def metric(router, name):
    for line in router.server.metrics_text().splitlines():
        if line.startswith(f"vllm_router_{name} "):
            return float(line.split()[-1])
    raise AssertionError(f"no metric {name}")


def wait_for_quarantines(router, count):
    eventually(lambda: metric(router, "quarantines_total") == count, "nothing was quarantined")


@pytest.mark.parametrize("size", [2, 500_000], ids=["short", "streamed"])
def test_one_poison_request_sent_again_and_again_costs_two_workers(harness, size):
    """mending row 1: 8 workers, one poison body 20 times among honest requests."""
    workers = [fragile(harness) for _ in range(8)]
    router = harness.router(*workers, **ON)
    outcomes = []

    def be_honest(number):
        client = harness.client(router)
        for turn in range(125):
            outcomes.append(client.ask("POST", PATH, body=b"%d of %d" % (turn, number)).status)

    threads = [threading.Thread(target=be_honest, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    poison = b"poison".ljust(size)
    answers = [harness.client(router).ask("POST", PATH, body=poison) for _ in range(20)]
    for thread in threads:
        thread.join()
    assert sum(worker.dead for worker in workers) == 2
    assert {answer.status for answer in answers} == {502}
    codes = [error_of(answer)["code"] for answer in answers]
    assert codes[1:] == ["request_suspected"] * 19
    # Lost are those alone whose first worker and whose second one died under them.
    assert len(outcomes) == 1000
    assert outcomes.count(200) >= 1000 - len(threads)


def test_a_poison_request_on_a_kept_connection_is_not_taken_for_an_innocent_race(harness):
    """mending row 1: a connection that was kept ends without a byte, and the worker is gone."""
    workers = [fragile(harness) for _ in range(5)]
    router = harness.router(*workers, **ON)
    client = harness.client(router)
    for _ in range(5):
        assert client.ask("POST", PATH, body=b"hello").status == 200  # leaves a connection at each
    assert client.ask("POST", PATH, body=b"poison").status == 502
    assert sum(worker.dead for worker in workers) == 2


def test_what_a_worker_was_lost_with_is_kept_apart(harness):
    """mending row 1: where all failed over to one worker, the innocent met the poison again and got 502."""
    gone = threading.Event()
    together = threading.Barrier(3)
    poisoned = []

    def answer(connection, message):
        if message.target == "/health":
            connection.send(response(200, b""))
        elif not poisoned:
            together.wait(10)
            if b"poison" in message.body:
                poisoned.append(connection.worker)
                connection.worker.die(connection)
        elif b"poison" in message.body:
            poisoned.append(connection.worker)
            connection.worker.die(connection)
            gone.set()
        else:
            assert gone.wait(10)
            connection.send(response(200, b"hello"))

    workers = [harness.worker(answer) for _ in range(6)]
    router = harness.router(*workers, policy="consistent_hash", **ON)
    clients = [harness.client(router) for _ in range(3)]
    for client, body in zip(clients, [b"poison", b"a", b"b"], strict=True):
        client.send(request("POST", PATH, ("X-Session-ID", "one"), body=body))
    assert [client.read_response().status for client in clients] == [502, 200, 200]
    assert len(poisoned) == 2


def test_no_retry_of_lost_requests_costs_one_worker(harness):
    workers = [fragile(harness) for _ in range(3)]
    router = harness.router(*workers, **ON, retry_lost_requests=0)
    assert error_of(harness.client(router).ask("POST", PATH, body=b"poison"))["code"] == "worker_closed"
    assert sum(worker.dead for worker in workers) == 1


def test_a_worker_that_lives_on_makes_no_suspect(harness):
    """A connection may be lost for other reasons: the health check says that the worker is healthy."""

    lost = []

    def answer(connection, message):
        if message.target == "/health" or len(lost) == 2:
            connection.send(response(200, b"hello"))
        else:
            lost.append(message)
            connection.reset()

    worker, other = harness.worker(answer), harness.worker(answer)
    client = harness.client(harness.router(worker, other, **{**ON, "health_check_interval_secs": 0.02}))
    assert client.ask("POST", PATH, body=b"{}").status == 502
    eventually(lambda: client.ask("POST", PATH, body=b"{}").status == 200, "it stayed a suspect")


def test_a_worker_that_only_accepts_connections_is_not_taken_for_alive(harness):
    """A process that ends may close its listener last: a connect in between had cleared the poison."""
    gate = threading.Event()
    arrived = threading.Semaphore(0)
    poisoned = []

    def answer(connection, message):
        if b"poison" in message.body:
            poisoned.append(connection.worker)
            connection.reset()
        else:
            if message.target == PATH:
                arrived.release()
            gate.wait(10)

    workers = [harness.worker(answer) for _ in range(4)]
    router = harness.router(*workers, **ON)
    client = harness.client(router)
    try:
        assert client.ask("POST", PATH, body=b"poison").status == 502
        assert len(poisoned) == 2
        for worker in workers:  # connects to each
            harness.client(router).send(request("POST", PATH, body=b"%d" % worker.port))
        for _ in workers:
            assert arrived.acquire(timeout=10)
        again = client.ask("POST", PATH, body=b"poison")
        assert error_of(again)["code"] == "request_suspected"
        assert len(poisoned) == 2
    finally:
        gate.set()


def test_a_client_that_changes_its_poison_is_given_one_request_at_a_time(harness):
    """mending row 1: two quarantined digests in ten minutes."""
    workers = [fragile(harness) for _ in range(4)]
    gated = harness.worker(lambda connection, _: (gate.wait(), connection.send(response(200, b"late"))))
    gate = gated.gate()
    router = harness.router(*workers, **ON)
    for count in (1, 2):
        assert harness.client(router).ask("POST", PATH, body=b"poison %d" % count).status == 502
        wait_for_quarantines(router, count)
    assert metric(router, "quarantined_requests") == 2
    assert metric(router, "restricted_clients") == 1

    router.core.add_worker(gated.url)
    first, second = harness.client(router), harness.client(router)
    first.send(request("POST", PATH, body=b"1"))
    gate.wait_for_someone()
    refused = second.ask("POST", PATH, body=b"2")
    assert (refused.status, error_of(refused)["code"], refused.get("retry-after")) == (
        429,
        "client_restricted",
        "1",
    )
    # Behind a proxy of ours there are other clients.
    other = harness.client(router)
    other.send(request("POST", PATH, ("X-Forwarded-For", "192.0.2.7"), body=b"3"))
    gate.wait_for_someone()
    gate.open()
    assert [client.read_response().status for client in (first, other)] == [200, 200]
    assert second.ask("POST", PATH, body=b"2").status == 200


def test_a_request_of_a_restricted_client_is_not_given_to_a_second_worker(harness):
    workers = [fragile(harness) for _ in range(6)]
    router = harness.router(*workers, **ON)
    for count in (1, 2):
        assert harness.client(router).ask("POST", PATH, body=b"poison %d" % count).status == 502
        wait_for_quarantines(router, count)
    assert harness.client(router).ask("POST", PATH, body=b"poison 3").status == 502
    assert sum(worker.dead for worker in workers) == 5


def test_the_log_names_the_request_and_nothing_of_its_content(harness, capfd):
    workers = [fragile(harness) for _ in range(2)]
    router = harness.router(*workers, **ON)
    client = harness.client(router)
    fields = [("X-Request-ID", "the-one")]
    client.ask("POST", PATH, *fields, body=b"poison")
    wait_for_quarantines(router, 1)
    from vllm_router import _core

    _core.flush_log()
    log = capfd.readouterr()
    lines = [line for line in (log.out + log.err).splitlines() if "quarantined" in line]
    assert any("the-one" in line for line in lines), log
    assert not any("poison" in line for line in lines)


def dying(harness, word, **options):
    """A worker that dies of a body it has in hand when `worker.dies` is set; else it serves."""

    def answer(connection, message):
        if worker.dies and word in message.body:
            worker.dies = False
            worker.die(connection)
        else:
            worker.served += message.target == PATH  # and not a health check, which may be late
            connection.send(response(200, b"hello"))

    worker = harness.worker(answer, **options)
    worker.dies = False
    worker.served = 0
    return worker


def test_a_shared_prompt_outlives_workers_that_are_killed_one_after_the_other(harness):
    """mending row 1: a prompt that many send is in flight on each worker that is killed."""
    workers = [dying(harness, b"shared") for _ in range(4)]
    router = harness.router(*workers, policy="random", **ON)
    client = harness.client(router)
    for number, worker in enumerate(workers[:3]):
        worker.dies = True
        living = workers[number + 1 :]
        while worker.dies:
            assert client.ask("POST", PATH, body=b"shared").status == 200
        for one in living:
            one.served = 0
        while min(one.served for one in living) < 3:
            assert client.ask("POST", PATH, body=b"shared").status == 200
    assert metric(router, "lost_requests_total") == 3
    assert metric(router, "quarantines_total") == 0


def test_what_one_worker_serves_does_not_clear_what_others_die_of(harness):
    """One of another version survives it, and the client keeps requests in flight there."""
    immune = harness.worker(lambda connection, _: connection.send(response(200, b"fine")))
    workers = [fragile(harness) for _ in range(6)]
    router = harness.router(immune, policy="consistent_hash", **ON)
    client = harness.client(router)
    for worker in workers:
        router.core.add_worker(worker.url)
    answers = []
    for number in range(60):
        session = ("X-Session-ID", f"s{number}")
        answers.append(client.ask("POST", PATH, session, body=b"poison").status)
    assert sum(worker.dead for worker in workers) == 2
    assert answers[-1] == 502


def test_requests_without_a_body_are_not_all_the_same(harness):
    """One WebSocket handshake that ends two workers does not shut the path for everybody."""

    def answer(connection, message):
        if "die" in message.target:
            dead.append(connection.worker)
            connection.worker.die(connection)
        else:
            connection.send(response(200, b"hello"))

    dead = []
    workers = [harness.worker(answer) for _ in range(5)]
    router = harness.router(*workers, **ON)
    client = harness.client(router)
    assert client.ask("GET", "/v1/realtime?do=die").status == 502
    wait_for_quarantines(router, 1)
    assert error_of(client.ask("GET", "/v1/realtime?do=die"))["code"] == "request_suspected"
    assert client.ask("GET", "/v1/realtime?model=m").status == 200
    assert client.ask("GET", "/v1/realtime").status == 200
    other = ("X-Forwarded-For", "192.0.2.7")
    assert error_of(client.ask("GET", "/v1/realtime?do=die", other))["code"] != "request_suspected"
    assert len(dead) == 4


def test_a_restricted_client_that_ends_one_more_worker_is_rejected(harness):
    """mending row 1: it does not help to change the body."""
    workers = [fragile(harness) for _ in range(10)]
    router = harness.router(*workers, **ON)
    client = harness.client(router)
    for count in (1, 2):
        assert client.ask("POST", PATH, body=b"poison %d" % count).status == 502
        wait_for_quarantines(router, count)
    codes = []
    for number in range(20):
        codes.append(error_of(client.ask("POST", PATH, body=b"poison number %d" % number))["code"])
    assert codes[-10:] == ["client_restricted"] * 10
    assert sum(worker.dead for worker in workers) <= 6


def test_a_quarantine_ends_when_a_worker_that_had_the_request_serves_it(harness):
    """mending row 1: it was in flight on a third worker, which serves it."""

    def late(connection, message):
        if message.target != "/health":
            gate.wait()
        connection.send(response(200, b"late"))

    slow = harness.worker(late)
    gate = slow.gate()
    router = harness.router(slow, policy="least_load", **ON)
    first, second = harness.client(router), harness.client(router)
    first.send(request("POST", PATH, body=b"poison"))
    gate.wait_for_someone()
    for _ in range(2):
        router.core.add_worker(fragile(harness).url)
    assert second.ask("POST", PATH, body=b"poison").status == 502
    wait_for_quarantines(router, 1)
    assert error_of(second.ask("POST", PATH, body=b"poison"))["code"] == "request_suspected"
    gate.open()
    assert first.read_response().status == 200
    eventually(lambda: metric(router, "quarantines_lifted_total") == 1, "the quarantine stayed")
    assert metric(router, "quarantined_requests") == 0
    assert second.ask("POST", PATH, body=b"poison").status == 200


def crash(worker):
    """As a process that is killed, whatever it serves."""
    worker.stop_listening()
    for connection in list(worker.connections):
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)


class Gated:
    """Six workers that respond when the test opens the gate, and clients of one address."""

    def __init__(self, harness, **options):
        self.harness = harness
        self.workers = [harness.worker(self.answer) for _ in range(6)]
        self.gate = self.workers[0].gate()
        self.router = harness.router(*self.workers, policy="least_load", **{**ON, **options})

    def answer(self, connection, message):
        if message.method == "POST":
            self.gate.wait()
        with contextlib.suppress(OSError):  # it has crashed meanwhile
            connection.send(response(200, b"hello"))

    def posts(self):
        return sum(len(worker.posts) for worker in self.workers)

    def send(self, bodies):
        """All of them are under way together."""
        before = self.posts()
        clients = [self.harness.client(self.router) for _ in bodies]
        for client, body in zip(clients, bodies, strict=True):
            client.send(request("POST", PATH, body=body))
        eventually(lambda: self.posts() == before + len(bodies), "not all reached a worker")
        return clients

    def shut(self):
        self.gate = self.workers[0].gate()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kinds", [80, 2], ids=["own bodies", "shared bodies"])
def test_two_crashes_do_not_throttle_a_client_with_many_requests(harness, kinds, threads):
    """Row 2: a few of 80 were on both workers; the client got one request at a time for ten minutes."""
    fleet = Gated(harness, threads=threads)
    workers, router = fleet.workers, fleet.router
    clients = fleet.send([b"body %d" % (number % kinds) for number in range(80)])
    lost = len(workers[0].posts)
    crash(workers[0])
    eventually(lambda: fleet.posts() == 80 + lost, "the lost ones were not sent again")
    crash(workers[1])
    both = {message.body for message in workers[0].posts} & {message.body for message in workers[1].posts}
    assert len(both) >= 2
    wait_for_quarantines(router, len(both))
    assert metric(router, "restricted_clients") == 0
    fleet.gate.open()
    statuses = [client.read_response().status for client in clients]
    assert statuses.count(200) >= 0.7 * len(statuses)
    if kinds == 2:  # others that were under way have been served
        eventually(lambda: metric(router, "quarantines_lifted_total") == 2, "the quarantines stayed")

    fleet.shut()
    clients = fleet.send([b"body %d" % (number % 2 if kinds == 2 else 100 + number) for number in range(40)])
    fleet.gate.open()
    assert [client.read_response().status for client in clients] == [200] * 40


def test_a_client_whose_quarantines_are_lifted_is_free_again(harness, capfd):
    """Row 2: the log said "no longer quarantined", and the client got 429."""
    from vllm_router import _core

    def late(connection, message):
        if message.target != "/health":
            gate.wait()
        connection.send(response(200, b"late"))

    slow = harness.worker(late)
    gate = slow.gate()
    router = harness.router(slow, policy="least_load", **ON)
    clients = [harness.client(router) for _ in range(2)]
    for number, client in enumerate(clients):
        client.send(request("POST", PATH, body=b"poison %d" % number))
        gate.wait_for_someone()
    for number in range(2):
        for _ in range(2):
            router.core.add_worker(fragile(harness).url)
        assert harness.client(router).ask("POST", PATH, body=b"poison %d" % number).status == 502
        wait_for_quarantines(router, number + 1)
    assert metric(router, "restricted_clients") == 1
    gate.open()
    assert [client.read_response().status for client in clients] == [200, 200]
    eventually(lambda: metric(router, "quarantines_lifted_total") == 2, "the quarantines stayed")
    assert metric(router, "restricted_clients") == 0
    _core.flush_log()
    log = capfd.readouterr()
    assert "their client is no longer restricted" in log.out + log.err
