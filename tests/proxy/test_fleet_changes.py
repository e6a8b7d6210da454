"""Workers that come, go, drain, fail their checks and recover while requests run."""

import threading

import pytest

from tests.fakes.wire import chunk, chunked, eventually, request, response

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def gated_stream(worker_of):
    def stream(connection, _message):
        connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        worker_of["gate"].wait()
        connection.send(chunked(b"data: [DONE]\n\n"))

    return stream


@pytest.mark.parametrize("how", ["remove_worker", "drain_worker", "unhealthy"])
def test_a_worker_that_leaves_the_fleet_finishes_what_it_has(harness, how):
    held: dict = {}
    leaving, staying = harness.worker(gated_stream(held)), harness.worker()
    held["gate"] = leaving.gate()
    router = harness.router(leaving, staying)
    client = harness.client(router)
    client.send(request())
    client.read_head()
    client.read_chunk()
    if how == "unhealthy":
        router.core.set_healthy(leaving.url, False)
    else:
        getattr(router.core, how)(leaving.url)
    other = harness.client(router)
    for _ in range(5):
        assert other.ask().body == b"hello"
    held["gate"].open()
    assert client.read_to_last_chunk() == b"data: [DONE]\n\n"
    client.must_be_open()
    assert len(leaving.requests) == 1


def test_a_worker_that_is_added_again_starts_with_no_load(harness):
    held: dict = {}
    worker = harness.worker(gated_stream(held))
    held["gate"] = worker.gate()
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request())
    client.read_head()
    assert router.loads() == [1]
    router.core.remove_worker(worker.url)
    router.core.add_worker(worker.url)
    assert router.loads() == [0]
    held["gate"].open()
    client.read_to_last_chunk()
    client.must_be_open()
    assert router.loads() == [0]


def test_no_request_fails_while_the_fleet_changes(harness):
    workers = [harness.worker() for _ in range(4)]
    router = harness.router(*workers, policy="least_load", threads=2)
    stop = threading.Event()
    failures, answered = [], []

    def keep_asking():
        client = router.connect()
        count = 0
        while not stop.is_set():
            answer = client.ask("POST", "/v1/completions", body=b"{}")
            count += 1
            if answer.status != 200:
                failures.append(answer)
        answered.append(count)
        client.close()

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    for round_number in range(60):
        worker = workers[round_number % 4]
        router.core.drain_worker(worker.url)
        router.core.remove_worker(worker.url)
        router.core.add_worker(worker.url, weight=1.0 + round_number % 3)
        router.core.set_healthy(workers[(round_number + 1) % 4].url, False)
        router.core.set_healthy(workers[(round_number + 1) % 4].url, True)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert len(answered) == 4


def test_a_worker_added_while_requests_run_gets_its_share(harness):
    first, second = harness.worker(), harness.worker()
    router = harness.router(first)
    client = harness.client(router)
    for _ in range(4):
        client.ask()
    router.core.add_worker(second.url)
    for _ in range(4):
        client.ask()
    assert len(second.requests) == 2


# ---- health checks


def checked(harness, *workers, **options):
    options = {"health_check_interval_secs": 0.02, "health_check_timeout_secs": 5, **options}
    return harness.router(*workers, **options)


def healthy(router):
    return [worker.healthy for worker in router.core.workers]


class Moody:
    """Answers its health check as told, and everything else with 200."""

    def __init__(self):
        self.health = 200
        self.checks = 0

    def __call__(self, connection, message):
        if message.target != "/health":
            connection.send(response(200, b"hello"))
            return
        self.checks += 1
        if self.health == "reset":
            connection.reset()
        elif self.health == "hang":
            connection.ending()
        else:
            connection.send(response(self.health, b""))


@pytest.mark.parametrize("failure", [500, 503, 404, 301, "reset", "hang"])
def test_a_worker_that_fails_its_checks_is_left_alone_until_it_recovers(harness, failure):
    mood = Moody()
    failing, other = harness.worker(mood), harness.worker()
    router = checked(harness, failing, other, health_check_timeout_secs=0.1)
    client = harness.client(router)
    assert healthy(router) == [True, True]
    mood.health = failure
    eventually(lambda: healthy(router) == [False, True], "it was never found out")
    before = len([message for message in failing.requests if message.target != "/health"])
    for _ in range(6):
        assert client.ask().body == b"hello"
    assert len([message for message in failing.requests if message.target != "/health"]) == before
    mood.health = 200
    eventually(lambda: healthy(router) == [True, True], "its recovery was never noticed")
    assert client.ask().body == b"hello"


def test_it_takes_as_many_failures_and_successes_in_a_row_as_set(harness):
    mood = Moody()
    script = [500, 500, 200, 500, 500, 500, 500, 200, 200, 500, 200, 200, 200]
    verdicts = []

    def answer(connection, _message):
        verdicts.append(router.core.workers[0].healthy)
        mood.health = script[min(len(verdicts) - 1, len(script) - 1)]
        connection.send(response(mood.health, b""))

    ready = threading.Event()
    worker = harness.worker(lambda *arguments: ready.wait(30) and answer(*arguments))
    router = checked(
        harness,
        worker,
        health_check_interval_secs=0.01,
        health_failure_threshold=4,
        health_success_threshold=3,
    )
    ready.set()
    eventually(lambda: len(verdicts) > len(script))
    # Before each check: healthy until the fourth failure in a row, then not until the third success in a row.
    assert verdicts[: len(script) + 1] == [True] * 7 + [False] * 6 + [True]


def test_a_worker_that_is_gone_and_comes_back_is_noticed(harness):
    worker = harness.worker()
    router = checked(harness, worker)
    worker.stop()
    eventually(lambda: healthy(router) == [False])
    assert harness.client(router).ask().status == 503
    harness.worker(port=worker.port)
    eventually(lambda: healthy(router) == [True])
    assert harness.client(router).ask().status == 200


def test_ranks_of_one_host_are_checked_once_and_share_the_verdict(harness):
    mood = Moody()
    mood.health = 500
    worker = harness.worker(mood)
    router = checked(harness, f"{worker.url}@0", f"{worker.url}@1", health_failure_threshold=2)
    eventually(lambda: healthy(router) == [False, False])
    assert mood.checks <= 4


def test_checks_carry_the_workers_key_and_count_as_no_load(harness):
    loads = []

    def answer(connection, _message):
        loads.append(router.loads())
        connection.send(response(200, b""))

    ready = threading.Event()
    worker = harness.worker(lambda *arguments: ready.wait(30) and answer(*arguments))
    router = checked(harness, worker, api_key="key", health_check_endpoint="/ping")
    ready.set()
    worker.wait_for_requests(3)
    for message in worker.requests[:3]:
        assert message.target == "/ping"
        assert message.get("authorization") == "Bearer key"
        assert message.get("host") == worker.authority
    assert loads[:2] == [[0], [0]]


def test_a_worker_that_was_removed_is_checked_no_more(harness):
    worker = harness.worker()
    router = checked(harness, worker)
    worker.wait_for_requests(2)
    router.core.remove_worker(worker.url)
    other = harness.worker()
    router.core.add_worker(other.url)
    other.wait_for_requests(2)  # so a whole round has passed
    seen = len(worker.requests)
    other.wait_for_requests(6)
    assert len(worker.requests) <= seen + 1


def test_without_an_interval_nobody_is_checked(harness):
    worker = harness.worker()
    router = harness.router(worker, health_check_interval_secs=0)
    harness.client(router).ask()
    assert [message.target for message in worker.requests] == ["/x"]


@pytest.mark.parametrize("form", ["query", "json"])
def test_a_name_is_no_worker_of_a_router_that_serves(harness, form):
    """mending row 52: ray:// and name:// are for programs that connect themselves."""
    router = harness.router(harness.worker())
    client = harness.client(router)
    if form == "query":
        answer = client.ask("POST", "/add_worker?url=ray://1f9k")
    else:
        answer = client.ask("POST", "/workers", body=b'{"url": "ray://1f9k"}')
    assert answer.status == 400
    assert (
        b"is a name, and a router that serves connects to its workers; give their http://host:port"
        in answer.body
    )
    assert len(router.core.worker_urls) == 1
