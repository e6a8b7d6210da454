"""Requests that fail at one worker and are answered by another: what is tried again, when, what is not."""

import itertools
import json
import time

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, eventually, request, response

ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 20}
COMPLETIONS = "/v1/completions"
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def ask(client, path=COMPLETIONS, body=b"{}", method="POST"):
    return client.ask(method, path, body=body)


def answering(status, *fields, body=b"no"):
    return lambda connection, _message: connection.send(response(status, body, *fields))


def metric(router, name):
    lines = router.server.metrics_text().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm_router_{name}"))


# ---- what is tried again


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_retryable_status_of_one_worker_is_answered_by_the_next(harness, status):
    failing, healthy = harness.worker(answering(status)), harness.worker()
    router = harness.router(failing, healthy, **ON)
    assert ask(harness.client(router)).body == b"hello"
    assert len(failing.requests) == len(healthy.requests) == 1
    assert failing.requests[0].body == healthy.requests[0].body == b"{}"


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 501, 505])
def test_any_other_status_is_the_answer(harness, status):
    worker, other = harness.worker(answering(status)), harness.worker()
    client = harness.client(harness.router(worker, other, **ON))
    assert (ask(client).status, len(other.requests)) == (status, 0)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 100 Continue\r\n\r\n"]
)
def test_a_worker_that_breaks_off_before_its_head_is_complete_is_passed_over(harness, how, said):
    def break_off(connection, _message):
        connection.send(said)
        getattr(connection, how)()

    client = harness.client(harness.router(harness.worker(break_off), harness.worker(), **ON))
    assert ask(client).body == b"hello"


def test_a_worker_that_says_nothing_is_passed_over(harness):
    silent = harness.worker(lambda connection, _: connection.ending())
    client = harness.client(harness.router(silent, harness.worker(), first_byte_timeout_secs=0.1, **ON))
    assert ask(client).body == b"hello"


def test_a_streamed_body_that_is_kept_is_sent_again_from_its_beginning(harness):
    failing, healthy = (
        harness.worker(answering(503)),
        harness.worker(lambda c, m: c.send(response(200, m.body))),
    )
    client = harness.client(harness.router(failing, healthy, **ON))
    body = bytes(range(256)) * 2000
    assert ask(client, body=body).body == body


def test_a_body_too_long_to_keep_is_not(harness):
    failing, other = harness.worker(answering(503)), harness.worker()
    client = harness.client(harness.router(failing, other, **ON))
    assert (ask(client, body=bytes(2_000_000)).status, len(other.requests)) == (503, 0)


# ---- what is not


def test_nothing_is_tried_again_once_the_client_has_a_byte(harness):
    def cut(connection, _message):
        connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        connection.reset()

    other = harness.worker()
    client = harness.client(harness.router(harness.worker(cut), other, **ON))
    client.send(request("POST", COMPLETIONS, body=b"{}"))
    assert client.read_head().status == 200
    assert not client.read_to_end().endswith(b"0\r\n\r\n")
    assert other.requests == []


@pytest.mark.parametrize("path", ["/v1/responses", "/my/own/path"])
def test_what_may_leave_something_behind_is_not_asked_of_two(harness, path):
    failing, other = harness.worker(answering(503)), harness.worker()
    client = harness.client(harness.router(failing, other, **ON))
    assert (ask(client, path).status, len(other.requests)) == (503, 0)


@pytest.mark.parametrize("path", ["/v1/responses", "/my/own/path"])
def test_unless_the_first_never_heard_of_it(harness, path):
    client = harness.client(harness.router(harness.refusing_port(), harness.worker(), **ON))
    assert ask(client, path).body == b"hello"


def test_reading_leaves_nothing_behind(harness):
    client = harness.client(harness.router(harness.worker(answering(503)), harness.worker(), **ON))
    assert ask(client, "/my/own/path", body=None, method="GET").body == b"hello"


# ---- who is next, and when it ends


def test_those_that_were_tried_are_left_out_while_there_are_others(harness):
    workers = [harness.worker(answering(500)) for _ in range(4)]
    client = harness.client(harness.router(*workers, policy="random", **ON))
    assert ask(client).status == 500
    assert sorted(len(worker.requests) for worker in workers) == [1, 1, 1, 2]  # five sends


def test_when_all_were_tried_the_last_one_is_left_out(harness):
    order = []

    def answer(name):
        return lambda connection, _: order.append(name) or connection.send(response(500, b""))

    client = harness.client(
        harness.router(harness.worker(answer("a")), harness.worker(answer("b")), policy="random", **ON)
    )
    ask(client)
    assert len(order) == 5
    assert all(one != other for one, other in itertools.pairwise(order))


def test_a_worker_that_is_alone_is_asked_again(harness):
    statuses = iter([503, 500, 200])
    worker = harness.worker(lambda connection, _: connection.send(response(next(statuses), b"done")))
    client = harness.client(harness.router(worker, **ON))
    assert (ask(client).status, len(worker.requests)) == (200, 3)


def test_one_that_joined_meanwhile_counts_as_untried(harness):
    def answer(connection, _message):
        router.core.add_worker(new.url)
        connection.send(response(503, b""))

    new = harness.worker()
    router = harness.router(harness.worker(answer), **ON)
    assert ask(harness.client(router)).body == b"hello"


def test_the_last_failure_is_what_the_client_gets_unchanged(harness):
    def answer(connection, _message):
        count = len(worker.requests)
        connection.send(response(503, b"the last word" * (count == 3), ("x-worker", str(count))))

    worker = harness.worker(answer)
    client = harness.client(harness.router(worker, retry_max_retries=3, **ON))
    last = ask(client)
    assert (last.status, last.body, last.get("x-worker")) == (503, b"the last word", "3")
    client.must_be_open()


def test_when_nobody_is_left_to_ask_the_answer_at_hand_is_passed_on(harness):
    def answer(connection, _message):
        connection.send(response(503, b"busy"))
        router.core.remove_worker(worker.url)

    worker = harness.worker(answer)
    router = harness.router(worker, disable_retries=False, retry_initial_backoff_ms=300)
    client = harness.client(router)
    assert (ask(client).body, len(worker.requests)) == (b"busy", 1)
    client.must_be_open()


def test_a_failed_try_that_was_read_to_its_end_leaves_its_connection_to_the_next_request(harness):
    statuses = iter([500, 200, 500, 200])
    worker = harness.worker(lambda connection, _: connection.send(response(next(statuses), b"body")))
    client = harness.client(harness.router(worker, **ON))
    assert [ask(client).status for _ in range(2)] == [200, 200]
    assert len(worker.connections) == 1


def test_a_failed_try_whose_body_is_still_coming_is_closed(harness):
    def answer(connection, _message):
        if len(worker.requests) == 1:
            connection.send(b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\nonly this")
            connection.ending()
        else:
            connection.send(response(200, b"hello"))

    worker = harness.worker(answer)
    client = harness.client(harness.router(worker, **ON))
    assert ask(client).body == b"hello"
    assert worker.connections[0].wait_ended() in ("eof", "reset")


def test_a_stale_connection_is_no_failed_try(harness):
    def answer(connection, message):
        if message.target == "/v1/embeddings" and connection is worker.connections[0]:
            connection.close()
            return
        connection.send(response(200, b"hello"))

    worker = harness.worker(answer)
    router = harness.router(worker, **ON)
    client = harness.client(router)
    ask(client)
    assert ask(client, "/v1/embeddings").body == b"hello"
    assert metric(router, "retries_total") == 0


def test_load_is_returned_by_every_try(harness):
    loads = []

    def answer(connection, _message):
        loads.append(sum(router.loads()))
        connection.send(response(500, b""))

    router = harness.router(harness.worker(answer), harness.worker(answer), **ON)
    ask(harness.client(router))
    assert loads == [1] * 5
    router.wait_for_load(0)


# ---- waiting


def test_the_first_move_after_a_broken_connection_is_at_once_and_a_later_one_waits(harness):
    slow = {"disable_retries": False, "retry_initial_backoff_ms": 60_000, "retry_max_backoff_ms": 60_000}
    client = harness.client(harness.router(harness.refusing_port(), harness.worker(), **slow))
    began = time.monotonic()
    assert ask(client).body == b"hello"
    assert time.monotonic() - began < 30


def test_a_worker_that_is_alone_gets_the_time_that_it_asks_for(harness):
    times = []

    def answer(connection, _message):
        times.append(time.monotonic())
        fields = [("Retry-After", "1")] if len(times) == 1 else []
        connection.send(response(503 if len(times) == 1 else 200, b"", *fields))

    assert ask(harness.client(harness.router(harness.worker(answer), **ON))).status == 200
    assert times[1] - times[0] >= 0.99


def test_a_long_retry_after_is_passed_on_at_once(harness):
    worker = harness.worker(answering(429, ("Retry-After", "3600")))
    answer = ask(harness.client(harness.router(worker, **ON)))
    assert (answer.status, answer.get("retry-after"), len(worker.requests)) == (429, "3600", 1)


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
def test_a_client_that_leaves_during_the_pause_is_noticed(harness, how):
    worker = harness.worker(answering(503))
    router = harness.router(
        worker, disable_retries=False, retry_initial_backoff_ms=60_000, retry_max_backoff_ms=60_000
    )
    client = harness.client(router)
    client.send(request("POST", COMPLETIONS, body=b"{}"))
    worker.wait_for_requests(1)
    getattr(client, how)()
    router.must_rest()  # long before the pause is over
    assert len(worker.requests) == 1


def test_a_shutdown_that_cuts_ends_the_pause(harness):
    worker = harness.worker(answering(503))
    router = harness.router(
        worker,
        disable_retries=False,
        retry_initial_backoff_ms=60_000,
        retry_max_backoff_ms=60_000,
        shutdown_grace_period_secs=0,
    )
    router.may_cut = True
    client = harness.client(router)
    client.send(request("POST", COMPLETIONS, body=b"{}"))
    worker.wait_for_requests(1)
    router.shutdown()
    assert error_of(client.read_response())["code"] == "shutting_down"
    router.must_end()


# ---- an outage does not multiply load


def test_a_small_fleet_with_two_bad_workers_loses_no_request(harness):
    """mending row 6: one dead and one failing worker of three, sixty requests at once, and not one error."""
    healthy = harness.worker()
    router = harness.router(harness.refusing_port(), harness.worker(answering(500)), healthy, threads=2, **ON)
    clients = [harness.client(router) for _ in range(60)]
    for client in clients:
        client.send(request("POST", COMPLETIONS, body=b"{}"))
    assert [client.read_response().status for client in clients] == [200] * 60


def test_what_happened_is_counted(harness):
    failing, healthy = harness.worker(answering(503)), harness.worker()
    router = harness.router(failing, healthy, **ON)
    ask(harness.client(router))
    router.must_rest()
    assert metric(router, 'retries_total{route="/v1/completions"}') == 1
    assert metric(router, 'retry_backoff_duration_seconds_count{attempt="1"}') == 1
    assert metric(router, f'failed_attempts_total{{worker="{failing.url}"}}') == 1
    assert metric(router, "retries_exhausted_total") == 0


def test_a_request_whose_tries_are_used_up_is_counted(harness):
    router = harness.router(harness.worker(answering(503)), **ON)
    ask(harness.client(router))
    router.must_rest()
    assert metric(router, 'retries_exhausted_total{route="/v1/completions"}') == 1
    assert metric(router, "retries_total") == 4


# ---- what the policy believes afterwards


@pytest.mark.parametrize("policy", ["cache_aware", "vllm_cache_aware", "auto"])
def test_a_worker_that_failed_is_not_believed_to_hold_the_prompt(harness, policy):
    lost = harness.worker(lambda connection, _message: connection.close())
    gone = harness.refusing_port()
    healthy = harness.worker()
    router = harness.router(lost, gone, healthy, policy=policy, **ON)
    client = harness.client(router)
    for number in range(9):  # the least loaded of equals is drawn, so each is tried first now and then
        body = json.dumps({"prompt": f"{number} {'once upon a time ' * 40}"}).encode()
        assert client.ask("POST", COMPLETIONS, body=body).status == 200

    def believed():
        stats = router.core.stats()
        workers = stats.get("cache_routing", stats.get("block_index"))["workers"]
        return [workers[worker.url] for worker in router.core.workers]

    eventually(lambda: sum(router.loads()) == 0)
    held = believed()
    assert held[0] == held[1] == 0
    assert held[2] > 0
    assert lost.requests


# ---- what is no JSON


@pytest.mark.parametrize("body", [b"{not json", b"", b"[1, 2]", b'{"prompt": "x"} {}', b"prompt=x"])
def test_a_body_that_no_engine_can_read_costs_one_attempt_and_no_workers_breaker(harness, body):
    """Row 61: an engine that responds 500 to it was asked five times, and its breaker counted them."""
    workers = [harness.worker(answering(500, body=b"cannot parse")) for _ in range(3)]
    router = harness.router(*workers, **ON, disable_circuit_breaker=False, cb_failure_threshold=1)
    client = harness.client(router)
    for _ in range(4):
        answer = ask(client, body=body)
        assert (answer.status, answer.body) == (500, b"cannot parse")
    assert sum(len(worker.requests) for worker in workers) == 4
    assert metric(router, "retries_total") == 0
    rows = json.loads(client.ask("GET", "/workers").body)["workers"]
    assert [row["circuit_breaker"] for row in rows] == ["closed"] * 3


@pytest.mark.parametrize(
    ("path", "fields", "body"),
    [
        (COMPLETIONS, (), b'{"prompt": "x"}'),
        ("/v1/audio/transcriptions", (("Content-Type", "Multipart/form-data; boundary=b"),), b"--b--"),
        (COMPLETIONS, (("Content-Encoding", "gzip"),), b"\x1f\x8b"),
    ],
)
def test_a_body_that_an_engine_may_read_is_tried_again(harness, path, fields, body):
    failing, healthy = harness.worker(answering(500)), harness.worker()
    client = harness.client(harness.router(failing, healthy, **ON))
    assert client.ask("POST", path, *fields, body=body).status == 200
    assert len(failing.requests) == len(healthy.requests) == 1
