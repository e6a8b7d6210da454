"""Admission: never more requests under way than allowed, the others in line, first come, first served."""

import re
import threading

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, chunked, eventually, request, response

COMPLETIONS = request("POST", "/v1/completions", body=b"{}")
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def metric(router, name):
    found = re.findall(rf"^vllm_router_{re.escape(name)} (\S+)$", router.server.metrics_text(), re.MULTILINE)
    return float(found[0]) if found else 0.0


def seats(router):
    """(requests under way, requests in line)"""
    return metric(router, "concurrent_requests"), metric(router, "queue_depth")


class Gated:
    """A worker that answers each request when it is told to, and says how many it has."""

    def __init__(self, harness):
        self.tickets = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.open, self.most = 0, 0
        self.order = []
        self.worker = harness.worker(self.answer)

    def answer(self, connection, message):
        with self.lock:
            self.open += 1
            self.most = max(self.most, self.open)
            self.order.append(message.target)
        assert self.tickets.acquire(timeout=30)
        with self.lock:
            self.open -= 1
        connection.send(response(200, b"hello"))

    def let(self, count=1):
        self.tickets.release(count)


def ask(client, path="/v1/completions", body=b"{}"):
    client.send(request("POST", path, body=body))


def come_and_leave(harness, router, rng, clients, leave):
    """Fifteen times many clients, some of which leave before their response: the others' statuses."""
    statuses = []
    for _round in range(15):
        many_clients = [harness.client(router) for _ in range(clients)]
        for client in many_clients:
            ask(client)
        stayers = []
        for client in many_clients:
            if rng.random() < leave:
                client.close() if rng.random() < 0.5 else client.reset()
            else:
                stayers.append(client)
        statuses += [client.read_response().status for client in stayers]
        for client in stayers:
            client.close()
    return statuses


def refused(client, status, code):
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (status, code)
    return answer


@pytest.mark.parametrize("threads", [1, 3])
def test_the_cap_is_never_exceeded_and_everybody_is_served(harness, threads):
    gated = Gated(harness)
    router = harness.router(gated.worker, threads=threads, max_concurrent_requests=3, queue_size=100)
    clients = [harness.client(router) for _ in range(20)]
    for client in clients:
        ask(client)
    eventually(lambda: seats(router) == (3, 17))
    gated.let(20)
    for client in clients:
        assert client.read_response().status == 200
    assert gated.most <= 3
    eventually(lambda: seats(router) == (0, 0))
    assert metric(router, "queue_wait_seconds_count") == 17


def test_a_seat_is_held_until_the_last_byte_of_a_stream(harness):
    finish = None

    def stream(connection, _message):
        connection.send(STREAM + chunk(b"data: 1\n\n"))
        finish.wait()
        connection.send(chunked())

    worker = harness.worker(stream)
    finish = worker.gate()
    router = harness.router(worker, max_concurrent_requests=1, queue_size=0)
    client, other = harness.client(router), harness.client(router)
    ask(client)
    client.read_head()
    ask(other)
    refused(other, 429, "queue_full")
    finish.open()
    eventually(lambda: seats(router) == (0, 0))
    ask(other)
    assert other.read_response().status == 200


def test_the_line_is_served_in_order_over_all_threads(harness):
    gated = Gated(harness)
    router = harness.router(gated.worker, threads=2, max_concurrent_requests=1, queue_size=100)
    clients = []
    for number in range(9):
        clients.append(harness.client(router))
        ask(clients[-1], f"/v1/{number}")
        eventually(lambda number=number: seats(router) == (1, number))
    gated.let(9)
    for client in clients:
        assert client.read_response().status == 200
    assert gated.order == [f"/v1/{number}" for number in range(9)]


def test_a_full_line_refuses_at_once_and_before_the_body(harness):
    gated = Gated(harness)
    router = harness.router(gated.worker, max_concurrent_requests=1, queue_size=1)
    first, second, third, fourth = (harness.client(router) for _ in range(4))
    ask(first)
    eventually(lambda: seats(router) == (1, 0))
    ask(second)
    eventually(lambda: seats(router) == (1, 1))
    ask(third)
    assert refused(third, 429, "queue_full").get("retry-after") == "1"
    third.must_be_open()
    # A body that has yet to come is not waited for.
    fourth.send(request("POST", "/v1/completions", ("Content-Length", "1000000")) + b"{")
    refused(fourth, 429, "queue_full")
    assert metric(router, 'admission_rejected_total{reason="queue_full"}') == 2
    gated.let(2)
    assert (first.read_response().status, second.read_response().status) == (200, 200)


def test_one_that_waits_too_long_gets_408_and_its_place_is_free(harness):
    gated = Gated(harness)
    router = harness.router(gated.worker, max_concurrent_requests=1, queue_size=1, queue_timeout_secs=0.2)
    first, second = harness.client(router), harness.client(router)
    ask(first)
    eventually(lambda: seats(router) == (1, 0))
    ask(second)
    refused(second, 408, "queue_timeout")
    eventually(lambda: seats(router) == (1, 0))
    gated.let()
    assert first.read_response().status == 200
    second.must_be_open()
    assert metric(router, 'admission_rejected_total{reason="queue_timeout"}') == 1


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_frees_its_place_at_once(harness, how, streamed):
    gated = Gated(harness)
    router = harness.router(gated.worker, max_concurrent_requests=1, queue_size=1, queue_timeout_secs=100)
    first, leaver, next_one = (harness.client(router) for _ in range(3))
    ask(first)
    eventually(lambda: seats(router) == (1, 0))
    if streamed:  # a body that is not read before the seat is had
        leaver.send(request("POST", "/v1/completions", ("Content-Length", "100000000")) + b"{" * 1000)
    else:
        ask(leaver)
    eventually(lambda: seats(router) == (1, 1))
    getattr(leaver, how)()
    eventually(lambda: seats(router) == (1, 0))
    ask(next_one)
    eventually(lambda: seats(router) == (1, 1))
    gated.let(2)
    assert (first.read_response().status, next_one.read_response().status) == (200, 200)
    assert len(gated.order) == 2


def test_the_reference_case_of_a_small_line(harness):
    """Capacity 1, a line of 1: of four at once one is served, one waits too long, two are refused."""
    gated = Gated(harness)
    router = harness.router(gated.worker, max_concurrent_requests=1, queue_size=1, queue_timeout_secs=0.5)
    clients = [harness.client(router) for _ in range(4)]
    for client in clients:
        ask(client)
    eventually(lambda: metric(router, 'admission_rejected_total{reason="queue_timeout"}') == 1)
    gated.let()
    assert sorted(client.read_response().status for client in clients) == [200, 408, 429, 429]


def test_endpoints_of_our_own_take_no_seat(harness):
    gated = Gated(harness)
    router = harness.router(gated.worker, max_concurrent_requests=1, queue_size=0)
    client = harness.client(router)
    ask(client)
    eventually(lambda: seats(router) == (1, 0))
    for path in ("/health", "/liveness", "/workers"):
        assert harness.client(router).ask("GET", path).status == 200
    gated.let()
    assert client.read_response().status == 200


def test_a_rate_limit_lets_a_seconds_worth_in_and_says_when_to_come_again(harness):
    router = harness.router(harness.worker(), rate_limit_tokens_per_second=3)
    client = harness.client(router)
    answers = [client.ask("POST", "/v1/completions", body=b"{}") for _ in range(30)]
    statuses = [answer.status for answer in answers]
    assert statuses[:3] == [200, 200, 200]
    assert 429 in statuses
    refusal = next(answer for answer in answers if answer.status == 429)
    assert (error_of(refusal)["code"], refusal.get("retry-after")) == ("rate_limited", "1")
    eventually(
        lambda: metric(router, 'admission_rejected_total{reason="rate_limited"}') == statuses.count(429)
    )
    client.must_be_open()
    eventually(lambda: client.ask("POST", "/v1/completions", body=b"{}").status == 200)


# ---- requests per worker


@pytest.mark.parametrize("policy", ["round_robin", "least_load", "consistent_hash"])
@pytest.mark.parametrize("threads", [1, 3])
def test_no_worker_has_more_than_it_may_and_the_others_wait(harness, policy, threads):
    workers = [Gated(harness), Gated(harness)]
    router = harness.router(
        *(gated.worker for gated in workers),
        policy=policy,
        threads=threads,
        routing={"max_worker_requests": 2},
    )
    clients = [harness.client(router) for _ in range(14)]
    for client in clients:
        ask(client)
    eventually(lambda: seats(router)[1] == 10)
    eventually(lambda: [gated.open for gated in workers] == [2, 2])
    for gated in workers:
        gated.let(14)
    for client in clients:
        assert client.read_response().status == 200
    assert all(gated.most <= 2 for gated in workers)
    assert sum(len(gated.order) for gated in workers) == 14
    eventually(lambda: seats(router) == (0, 0))


def test_who_waits_for_a_worker_is_let_to_one_that_joins(harness):
    full, fresh = Gated(harness), Gated(harness)
    router = harness.router(full.worker, routing={"max_worker_requests": 1})
    clients = [harness.client(router) for _ in range(3)]
    for number, client in enumerate(clients):
        ask(client)
        eventually(lambda number=number: seats(router)[1] == number)
    router.core.add_worker(fresh.worker.url)
    eventually(lambda: fresh.open == 1)
    assert seats(router)[1] == 1
    full.let(3)
    fresh.let(3)
    for client in clients:
        assert client.read_response().status == 200


def test_who_waits_for_a_worker_is_told_when_there_is_none_any_more(harness):
    gated = Gated(harness)
    router = harness.router(gated.worker, routing={"max_worker_requests": 1})
    clients = [harness.client(router) for _ in range(4)]
    for number, client in enumerate(clients):
        ask(client)
        eventually(lambda number=number: seats(router)[1] == number)
    router.core.drain_worker(gated.worker.url)
    for client in clients[1:]:
        refused(client, 503, "no_workers")
    gated.let()
    assert clients[0].read_response().status == 200


def test_a_line_for_workers_is_bounded_in_length_and_time(harness):
    gated = Gated(harness)
    router = harness.router(
        gated.worker, routing={"max_worker_requests": 1}, queue_size=2, queue_timeout_secs=1
    )
    clients = [harness.client(router) for _ in range(4)]
    for number, client in enumerate(clients[:3]):
        ask(client)
        eventually(lambda number=number: seats(router)[1] == number)
    ask(clients[3])
    refused(clients[3], 429, "queue_full")
    for client in clients[1:3]:
        refused(client, 408, "queue_timeout")
    gated.let()
    assert clients[0].read_response().status == 200


@pytest.mark.parametrize("threads", [1, 3])
def test_retries_that_find_everybody_full_wait_in_front_of_those_who_came_later(harness, threads):
    held = []

    def hold(connection, message):
        held.append(message.target)
        death.wait()
        connection.reset()

    dying, healthy = harness.worker(hold), Gated(harness)
    death = dying.gate()
    router = harness.router(
        dying,
        healthy.worker,
        threads=threads,
        routing={"max_worker_requests": 3},
        disable_retries=False,
        retry_initial_backoff_ms=1,
        retry_max_backoff_ms=2,
    )
    clients = [harness.client(router) for _ in range(9)]
    for number, client in enumerate(clients):
        ask(client, f"/v1/completions?{number}")
        eventually(lambda number=number: len(held) + healthy.open + seats(router)[1] == number + 1)
    assert (len(held), healthy.open, seats(router)[1]) == (3, 3, 3)
    router.core.set_healthy(dying.url, False)
    death.open()
    eventually(lambda: seats(router)[1] == 6)
    for served in range(4, 10):
        healthy.let()
        eventually(lambda served=served: len(healthy.order) == served)
    # The retries, and the first who found everybody full, had their seats before there was a line.
    assert set(healthy.order[3:7]) == {*held, "/v1/completions?6"}
    assert healthy.order[7:] == ["/v1/completions?7", "/v1/completions?8"]
    healthy.let(3)
    for client in clients:
        assert client.read_response().status == 200
    assert healthy.most <= 3
    eventually(lambda: seats(router) == (0, 0))


def test_a_storm_of_retries_and_client_disconnects_loses_no_place(harness, rng):
    """Workers break off a third of the time, clients leave a third of the time, and there is room for few."""
    broken = iter(rng.choices([True, False, False], k=10_000))

    def answer(connection, _message):
        if next(broken):
            connection.reset()
        else:
            connection.send(response(200, b"hello"))

    router = harness.router(
        *(harness.worker(answer) for _ in range(2)),
        threads=3,
        max_concurrent_requests=6,
        queue_size=20,
        routing={"max_worker_requests": 2},
        disable_retries=False,
        retry_budget=1.0,
        retry_initial_backoff_ms=1,
        retry_max_backoff_ms=3,
    )
    statuses = come_and_leave(harness, router, rng, clients=16, leave=0.3)
    assert set(statuses) <= {200, 429, 502}
    assert statuses.count(200) > len(statuses) / 2
    eventually(lambda: seats(router) == (0, 0))
    fresh = harness.client(router)
    assert {fresh.ask("POST", "/v1/completions", body=b"{}").status for _ in range(20)} <= {200, 502}


class Failing:
    """A worker that fails once and then holds what it gets, beside one that is full."""

    def __init__(self, harness, **options):
        self.failed = False
        self.gate = None
        self.failing = harness.worker(self.answer)
        self.gate = self.failing.gate()
        self.full = Gated(harness)
        self.router = harness.router(
            self.full.worker,
            self.failing,
            routing={"max_worker_requests": 1},
            disable_circuit_breaker=False,
            cb_failure_threshold=1,
            cb_success_threshold=1,
            **options,
        )
        self.clients = [harness.client(self.router) for _ in range(4)]
        ask(self.clients[0])
        eventually(lambda: self.full.open == 1)
        ask(self.clients[1])
        assert self.clients[1].read_response().status == 500

    def answer(self, connection, _message):
        if not self.failed:
            self.failed = True
            connection.send(response(500, b""))
            return
        self.gate.wait()
        connection.send(response(200, b"probed"))

    def finish(self):
        self.gate.open()
        self.full.let(10)
        eventually(lambda: seats(self.router) == (0, 0))


def test_who_waits_for_a_worker_is_let_to_one_whose_breaker_comes_due(harness):
    """The full one may be busy for minutes; nobody else comes who would notice."""
    both = Failing(harness, cb_timeout_duration_secs=0.5)
    ask(both.clients[2])
    both.gate.wait_for_someone()
    assert both.full.open == 1
    both.gate.open()
    assert both.clients[2].read_response().body == b"probed"
    both.finish()
    assert both.clients[0].read_response().status == 200


def test_beside_a_held_probe_and_a_full_worker_one_waits_without_a_stir(harness):
    both = Failing(harness, cb_timeout_duration_secs=0.1, queue_timeout_secs=1)
    ask(both.clients[2])
    both.gate.wait_for_someone()  # the probe
    before = metric(both.router, "queue_requeues_total")
    ask(both.clients[3])
    refused(both.clients[3], 408, "queue_timeout")
    assert metric(both.router, "queue_requeues_total") - before <= 3
    assert len(both.failing.requests) == 2
    both.finish()
    for client in (both.clients[0], both.clients[2]):
        assert client.read_response().status == 200


@pytest.mark.parametrize("threads", [1, 3])
def test_and_gets_through_to_whichever_is_free_first(harness, threads):
    both = Failing(harness, cb_timeout_duration_secs=0.1, queue_timeout_secs=100, threads=threads)
    ask(both.clients[2])
    both.gate.wait_for_someone()
    ask(both.clients[3])
    eventually(lambda: seats(both.router)[1] == 1)
    both.full.let()
    assert both.clients[0].read_response().status == 200
    eventually(lambda: len(both.full.order) == 2)
    both.finish()
    for client in both.clients[2:]:
        assert client.read_response().status == 200


# ---- shutdown


def test_a_shutdown_serves_the_line_and_the_end_of_its_grace_answers_it(harness):
    gated = Gated(harness)
    router = harness.router(gated.worker, max_concurrent_requests=1, shutdown_grace_period_secs=100)
    clients = [harness.client(router) for _ in range(3)]
    for number, client in enumerate(clients):
        ask(client)
        eventually(lambda number=number: seats(router)[1] == number)
    router.shutdown()
    gated.let()  # the first, and then the one who was next
    assert clients[0].read_response().status == 200
    eventually(lambda: len(gated.order) == 2)
    router.may_cut = True
    router.shutdown()  # now
    for client in clients[1:]:
        refused(client, 503, "shutting_down")
    router.must_end()
    gated.let()  # else the worker waits


def test_many_that_come_and_leave_at_random_leave_nothing_behind(harness, rng):
    workers = [Gated(harness), Gated(harness)]
    router = harness.router(
        *(gated.worker for gated in workers),
        threads=3,
        max_concurrent_requests=5,
        queue_size=10,
        routing={"max_worker_requests": 2},
    )
    for gated in workers:
        gated.let(10_000)
    statuses = come_and_leave(harness, router, rng, clients=12, leave=0.4)
    assert set(statuses) <= {200, 429}
    assert all(gated.most <= 2 for gated in workers)
    eventually(lambda: seats(router) == (0, 0))
