"""cpp/proxy/control/health_checker.h. Failing and recovering are in tests/proxy/test_fleet_changes.py."""

import threading

import pytest

from tests.fakes.wire import eventually, request, response


def test_a_worker_that_hangs_holds_up_nobody_else_s_check(harness):
    hanging = harness.worker(lambda connection, _: connection.ending())
    other = harness.worker()
    harness.router(hanging, other, health_check_interval_secs=0.02, health_check_timeout_secs=100)
    other.wait_for_requests(5)


def test_all_are_asked_at_once(harness):
    together = threading.Barrier(5)

    def answer(connection, _message):
        together.wait(30)
        connection.send(response(200, b""))

    workers = [harness.worker(answer) for _ in range(5)]
    harness.router(*workers, health_check_interval_secs=0.05)
    for worker in workers:
        worker.wait_for_requests(2)


def test_workers_added_later_are_asked_too(harness):
    router = harness.router(health_check_interval_secs=0.02)
    worker = harness.worker()
    router.core.add_worker(worker.url)
    worker.wait_for_requests(2)


def test_checks_use_connections_of_their_own(harness):
    worker = harness.worker()
    router = harness.router(worker, health_check_interval_secs=0.02)
    client = harness.client(router)
    for _ in range(20):
        assert client.ask().status == 200
    worker.wait_for_requests(25)
    with_requests = [
        {message.target for message in connection.requests} for connection in list(worker.connections)
    ]
    assert all(len(targets) <= 1 for targets in with_requests)


def test_a_verdict_changes_the_fleet_once(harness):
    answers = {"status": 500}

    def answer(connection, _message):
        connection.send(response(answers["status"], b""))

    worker = harness.worker(answer)
    router = harness.router(worker, health_check_interval_secs=0.01, health_failure_threshold=2)
    eventually(lambda: not router.core.workers[0].healthy)
    # Somebody else may set the health too; the checker speaks up again only when its own verdict changes.
    router.core.set_healthy(worker.url, True)
    worker.wait_for_requests(len(worker.requests) + 3)
    assert router.core.workers[0].healthy


def test_a_worker_that_a_request_finds_out_of_reach_is_asked_at_once(harness):
    """The interval is an hour; the verdict comes within seconds."""
    worker = harness.worker()
    router = harness.router(worker, health_check_interval_secs=3600)
    client = harness.client(router)
    worker.wait_for_requests(1)  # the first check
    worker.stop()
    assert client.ask("POST", "/v1/completions", body=b"{}").status == 502
    eventually(lambda: not router.core.workers[0].healthy)
    harness.worker(port=worker.port)
    eventually(lambda: router.core.workers[0].healthy)


def test_a_worker_whose_streams_break_off_is_asked_at_once(harness):
    def answer(connection, message):
        if message.target == "/health":
            connection.send(response(200, b""))
            return
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        connection.close()

    worker = harness.worker(answer)
    router = harness.router(worker, health_check_interval_secs=3600)
    worker.wait_for_requests(1)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=b"{}"))
    client.ending()
    messages = worker.wait_for_requests(3)
    assert [message.target for message in messages] == ["/health", "/v1/completions", "/health"]


@pytest.mark.parametrize(
    "how", ["silent", "half a head", "a body without an end", "500", "302", "101", "rubbish"]
)
def test_what_is_no_2xx_in_time_has_failed(harness, how):
    said = {
        "silent": b"",
        "half a head": b"HTTP/1.1 200 OK\r\nContent-",
        "a body without an end": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        "500": response(500, b""),
        "302": response(302, b"", ("Location", "/other")),
        "101": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "rubbish": b"SSH-2.0-OpenSSH\r\n",
    }[how]

    def answer(connection, _message):
        connection.send(said)
        connection.ending()

    router = harness.router(
        harness.worker(answer),
        health_check_interval_secs=0.05,
        health_check_timeout_secs=0.2,
        health_failure_threshold=2,
    )
    eventually(lambda: not router.core.workers[0].healthy)


@pytest.mark.parametrize("status", [200, 204])
def test_any_2xx_is_well(harness, status):
    worker = harness.worker(
        lambda connection, _: connection.send(response(status, b"", length=status != 204))
    )
    router = harness.router(worker, health_check_interval_secs=0.02, health_failure_threshold=1)
    worker.wait_for_requests(4)
    assert router.core.workers[0].healthy


MOST_AT_ONCE = 128


def test_so_many_are_asked_at_once_and_the_others_have_their_turn(harness):
    gate = None

    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b""))

    workers = [harness.worker(answer) for _ in range(MOST_AT_ONCE + 5)]
    gate = workers[0].gate()
    harness.router(*workers, health_check_interval_secs=3600, health_check_timeout_secs=100)

    def asked():
        return sum(len(worker.requests) for worker in workers)

    for _ in range(MOST_AT_ONCE):
        gate.wait_for_someone()
    assert asked() == MOST_AT_ONCE
    gate.open()
    for worker in workers:
        worker.wait_for_requests(1)
    assert asked() == len(workers)


def test_who_hangs_holds_his_place_no_longer_than_the_timeout(harness):
    hanging = [harness.worker(lambda connection, _: connection.ending()) for _ in range(MOST_AT_ONCE)]
    others = [harness.worker() for _ in range(5)]
    harness.router(*hanging, *others, health_check_interval_secs=3600, health_check_timeout_secs=0.5)
    for worker in others:
        worker.wait_for_requests(1)


def test_ranks_of_one_host_are_asked_once_and_judged_together(harness):
    answers = {"status": 200}
    worker = harness.worker(lambda connection, _: connection.send(response(answers["status"], b"")))
    router = harness.router(
        worker,
        health_check_interval_secs=0.02,
        health_failure_threshold=1,
        health_success_threshold=1,
        routing={"intra_node_data_parallel_size": 4},
    )
    worker.wait_for_requests(2)
    answers["status"] = 500
    eventually(lambda: [rank.healthy for rank in router.core.workers] == [False] * 4)
    answers["status"] = 200
    eventually(lambda: [rank.healthy for rank in router.core.workers] == [True] * 4)


def test_checks_carry_the_workers_key(harness):
    worker = harness.worker()
    harness.router(worker, health_check_interval_secs=3600, api_key="secret")
    assert worker.wait_for_requests(1)[0].get("authorization") == "Bearer secret"


def test_a_worker_that_comes_back_gets_its_share_over_the_slow_start(harness):
    worker = harness.worker()
    router = harness.router(worker, health_check_interval_secs=0.05, slow_start_secs=1)

    def warmth():
        lines = router.server.metrics_text().splitlines()
        return next(
            float(line.split()[-1])
            for line in lines
            if line.startswith("vllm_router_worker_slow_start_factor{")
        )

    worker.wait_for_requests(1)
    assert warmth() == 1
    worker.stop()
    eventually(lambda: not router.core.workers[0].healthy)
    harness.worker(port=worker.port)
    seen = set()
    eventually(lambda: seen.add(warmth()) or (len(seen) > 3 and 1.0 in seen))
    assert min(seen) >= 0.1


@pytest.mark.parametrize("compat", [False, True])
def test_one_failing_worker_makes_the_router_unhealthy_only_for_those_who_want_that(harness, compat):
    router = harness.router(harness.worker(), harness.worker(), health_compat=compat)
    client = harness.client(router)
    assert client.ask("GET", "/health").body == b"All servers healthy"
    router.core.set_healthy(router.core.worker_urls[0], False)
    answer = client.ask("GET", "/health")
    assert answer.status == (503 if compat else 200)
    assert b"Unhealthy servers: [" in answer.body
    router.core.set_healthy(router.core.worker_urls[1], False)
    assert client.ask("GET", "/health").status == 503
