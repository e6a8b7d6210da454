"""Counting on the wire: every request is counted once, however it ends, and scrapes never get in its way."""

import http.client
import json
import threading

import pytest

from tests.fakes.prometheus_text import never_fell, parse
from tests.fakes.wire import eventually, request, response
from vllm_router import _core_testing as testing

CHAT = "/v1/chat/completions"


def page_of(router):
    families = parse(router.server.metrics_text())
    return {name.removeprefix("vllm_router_"): family for name, family in families.items()}


def ends_of(router, route):
    ends = page_of(router)["exchange_end_total"].series
    return {dict(labels)["end"]: count for labels, count in ends.items() if dict(labels)["route"] == route}


def wait_for_end(router, route, **expected):
    eventually(
        lambda: ends_of(router, route) == expected, f"{ends_of(router, route)} never became {expected}"
    )


def test_the_metrics_port_serves_the_page_and_nothing_else(harness):
    router = harness.router(harness.worker(), prometheus_port=0)
    scraper = http.client.HTTPConnection("127.0.0.1", router.server.metrics_port)
    scraper.request("GET", "/metrics")
    answer = scraper.getresponse()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    parse(answer.read().decode())
    scraper.request("GET", "/liveness")
    answer = scraper.getresponse()
    assert (answer.status, json.load(answer)["error"]["code"]) == (404, "not_found")
    assert page_of(router)["client_connections"].value() == 0  # a scraper is no client
    scraper.close()


@pytest.mark.timeout(110)
def test_every_request_is_counted_once_while_others_run_and_somebody_scrapes(harness, rng):
    def answer(connection, message):
        if message.target.endswith("/breaks"):
            connection.send(response(200, b"half", ("Content-Length", "100"), length=False))
            connection.close()
        else:
            connection.send(response(404 if message.target.endswith("/missing") else 200, b"whole"))

    router = harness.router(harness.worker(answer), harness.worker(answer), threads=2, prometheus_port=0)
    each = 60
    plans = [
        [rng.choice(["ok", "ok", "missing", "breaks", "own", "bad", "chat"]) for _ in range(each)]
        for _ in range(4)
    ]

    def run(plan):
        for step in plan:
            client = router.connect()
            if step == "bad":
                assert client.ask("GET", "/x", host=None).status == 400
            elif step == "own":
                assert client.ask("GET", "/liveness").status == 200
            elif step == "breaks":
                client.send(request("GET", "/breaks"))
                assert client.ending() in ("eof", "reset")
            else:
                target = {"ok": "/x", "missing": "/missing", "chat": CHAT}[step]
                assert client.ask("POST", target, body=b"{}").status == (404 if step == "missing" else 200)
            client.close()

    threads = [threading.Thread(target=run, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    scraper = http.client.HTTPConnection("127.0.0.1", router.server.metrics_port)
    last = None
    scrapes = 0
    while last is None or any(thread.is_alive() for thread in threads):
        scraper.request("GET", "/metrics")
        page = parse(scraper.getresponse().read().decode())
        scrapes += 1
        if last is not None:
            never_fell(last, page)
        last = page
    for thread in threads:
        thread.join()
    scraper.close()

    count = {
        step: sum(plan.count(step) for plan in plans)
        for step in ("missing", "breaks", "own", "bad", "chat", "ok")
    }
    requests = each * len(plans)
    eventually(lambda: page_of(router)["exchange_end_total"].total() == requests + scrapes)
    page = page_of(router)
    assert page["exchange_end_total"].value(route="/metrics", end="done") == scrapes
    assert page["exchange_end_total"].value(route="other", end="worker_gone") == count["breaks"]
    assert page["http_responses_total"].total() == requests + scrapes
    assert page["http_responses_total"].value(route="other", code="404") == count["missing"]
    assert page["http_responses_total"].value(route="other", code="400") == count["bad"]
    assert page["bad_requests_total"].series == {(("reason", "host"),): count["bad"]}
    assert page["requests_total"].value(route=CHAT) == count["chat"]
    proxied = requests - count["own"] - count["bad"]
    assert page["policy_decisions_total"].total() == page["processed_requests_total"].total() == proxied
    assert page["overhead_seconds"].histogram().count == proxied
    assert page["upstream_head_seconds"].total() == proxied


def test_a_client_that_leaves_is_an_end_without_an_answer(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", CHAT, body=b"{}"))
    worker.wait_for_requests()
    assert page_of(router)["in_flight"].value() == 1
    client.close()
    wait_for_end(router, CHAT, client_gone=1)
    page = page_of(router)
    assert page["http_responses_total"].series == {}
    assert page["request_errors_total"].value(route=CHAT, error_type="client_gone") == 1
    assert page["in_flight"].value() == 0


def test_a_stream_cut_by_a_deadline_says_which(harness):
    def answer(connection, _):
        connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.send(b"5\r\n: hi\n\r\n")
        connection.ending()

    for option, error in (
        ("stream_idle_timeout_secs", "stream_idle_timeout"),
        ("stream_total_timeout_secs", "total_timeout"),
    ):
        router = harness.router(harness.worker(answer), **{option: 0.05})
        client = harness.client(router)
        client.send(request("POST", CHAT, body=b"{}"))
        client.ending()
        wait_for_end(router, CHAT, timeout=1)
        assert page_of(router)["request_errors_total"].value(route=CHAT, error_type=error) == 1


def test_connections_to_workers_are_active_then_idle_then_gone(harness):
    worker = harness.worker()
    gate = worker.gate()

    def wait(connection, _):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker.answer = wait
    router = harness.router(worker, upstream_pool_idle_secs=0.05)
    client = harness.client(router)
    client.send(request())
    gate.wait_for_someone()

    def states():
        connections = page_of(router)["upstream_connections"]
        return connections.value(state="active"), connections.value(state="idle")

    assert states() == (1, 0)
    gate.open()
    client.read_response()
    eventually(lambda: states() in ((0, 1), (0, 0)))
    eventually(lambda: states() == (0, 0))
    assert page_of(router)["upstream_connects_total"].value(result="ok") == 1


def test_connects_that_fail_and_connections_that_went_stale_are_counted(harness):
    def answer(connection, message):
        if message.target == "/last":  # says nothing to what comes on a kept connection
            connection.close() if len(connection.requests) > 1 else connection.send(response(200))
        else:
            connection.send(response(200))

    router = harness.router(harness.worker(answer))
    client = harness.client(router)
    assert client.ask("GET", "/first").status == 200
    assert client.ask("GET", "/last").status == 200
    # An exchange is counted when it is over, a moment after its client has the answer.
    eventually(lambda: page_of(router)["upstream_stale_retries_total"].value() == 1)
    assert page_of(router)["upstream_connects_total"].value(result="ok") == 2

    router = harness.router(harness.refusing_port())
    assert harness.client(router).ask("POST", CHAT, body=b"{}").status == 502
    eventually(
        lambda: (
            page_of(router)["request_errors_total"].value(route=CHAT, error_type="worker_unreachable") == 1
        )
    )
    page = page_of(router)
    assert page["upstream_connects_total"].value(result="failed") == 1
    assert page["processed_requests_total"].total() == 0


def test_a_client_over_the_limit_is_counted_as_rejected(harness):
    router = harness.router(harness.worker(), max_connections=1)
    first = harness.client(router)
    first.send(request("POST", "/x", body=b"ab")[:-1])
    first.wait_until_read()
    assert harness.client(router).ending() in ("eof", "reset")
    page = page_of(router)
    assert page["client_connections"].value() == 1
    assert page["client_connections_evicted_total"].value() == 0
    assert page["client_connections_rejected_total"].value(reason="max_connections") == 1


def test_a_client_that_does_not_read_makes_stalls(harness):
    body = bytes(16 << 20)  # four times what the kernel holds for us
    router = harness.router(harness.worker(lambda connection, _: connection.send(response(200, body))))
    client = harness.client(router, receive_buffer=4096)
    client.send(request())
    client.wait_until_received(2048)
    assert client.read_response().body == body
    wait_for_end(router, "other", done=1)
    page = page_of(router)
    assert page["relay_stalls_total"].value(side="client") > 0
    assert page["bytes_total"].value(side="client", direction="out") == len(body)
    assert page["bytes_total"].value(side="worker", direction="in") == len(body)


def test_tokens_come_from_the_usage_of_the_answer(harness):
    usage = (
        b'{"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":64}}}'
    )
    worker = harness.worker(lambda connection, _: connection.send(response(200, usage)))
    router = harness.router(worker)
    for _ in range(2):
        harness.client(router).ask("POST", CHAT, body=b"{}")
    wait_for_end(router, CHAT, done=2)
    page = page_of(router)
    names = ("prompt_tokens_total", "completion_tokens_total", "cached_tokens_total")
    assert [page[name].value(worker=worker.url) for name in names] == [200, 14, 128]


def test_the_access_log_tells_each_exchange_once_and_nothing_secret(harness, capfd):
    testing.configure_log()  # as it is at first, whatever ran in this process before
    router = harness.router(harness.worker(), access_log=True)
    client = harness.client(router)
    client.ask("POST", f"{CHAT}?key=secret", ("Authorization", "Bearer secret"), body=b'{"prompt":"secret"}')
    client.ask("GET", "/liveness", ("x-request-id", "mine"))
    harness.client(router).ask("GET", "/x", host=None)
    client.close()
    router.shutdown()
    router.must_end()
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 3, lines
    assert "secret" not in "".join(lines)
    assert f'127.0.0.1 "POST {CHAT}" 200 done worker=' in lines[0]
    assert lines[1].endswith(" id=mine")
    assert ' 127.0.0.1 "-" 400 done error=bad_request rule=host ' in lines[2]


def test_lines_have_numbers_that_tell_their_order_and_what_was_dropped(harness, written_to):
    """mending row 32: lines of several threads came out of order, and nothing told."""
    testing.configure_log(json=True)
    try:
        stdout = written_to(1)
        router = harness.router(harness.worker(), access_log=True, threads=2)
        for _ in range(10):
            client = harness.client(router)
            client.ask("GET", "/x")
            client.close()
        router.shutdown()
        router.must_end()
        eventually(lambda: stdout().count("\n") == 10)
        lines = [json.loads(line) for line in stdout().splitlines()]
    finally:
        testing.configure_log()
    assert sorted(line["seq"] for line in lines) == list(range(1, 11))


FORMER_NAMES = {
    "worker_rests": "worker_backoff",
    "worker_warmth": "worker_slow_start_factor",
    "seats_taken": "concurrent_requests",
    "seats": "concurrent_requests_limit",
    "queue_steps_back_total": "queue_requeues_total",
    "worker_restarts_guessed_total": "worker_restarts_inferred_total",
    "failed_tries_total": "failed_attempts_total",
}


def test_a_renamed_metric_has_its_former_name_as_well(harness):
    router = harness.router(harness.worker(), policy="cache_aware", prometheus_port=0)
    page = page_of(router)
    for former, present in FORMER_NAMES.items():
        assert page[former].help == f"Deprecated: use vllm_router_{present}."
        assert (page[former].kind, page[former].series) == (page[present].kind, page[present].series)
        assert page[present].series, present
    deprecated = {name for name, family in page.items() if family.help.startswith("Deprecated")}
    assert deprecated == FORMER_NAMES.keys()
