"""What the metrics say of requests that a prefill and a decode worker serve (docs/reference/metrics.md)."""

import pytest

from tests.fakes.pd import WHOLE, ask, handing_over, responding, series, staged
from tests.fakes.wire import eventually, request, response

BODY = b'{"model":"m","prompt":"hi"}'


def must_become(router, name, expected):
    eventually(lambda: series(router, name) == expected, f"{name}: {series(router, name)}")


def test_a_pair_counts_by_route_and_by_worker(harness):
    prefill, decode = handing_over(harness), harness.worker()
    router = staged(harness, [prefill], [decode])
    client = harness.client(router)
    for path in ("/v1/completions", "/v1/completions", "/v1/chat/completions"):
        assert ask(client, path).status == 200
    assert ask(client, prompt=["a", "b"]).status == 200  # by decode alone
    assert ask(client, "/v1/embeddings").status == 200  # by prefill alone
    routes = {"/v1/completions": 2, "/v1/chat/completions": 1}
    must_become(router, "pd_requests_total", routes)
    assert series(router, "pd_request_duration_seconds_count") == routes
    assert series(router, "pd_prefill_requests_total") == {prefill.url: 3}
    assert series(router, "pd_decode_requests_total") == {decode.url: 3}
    for name in ("pd_errors_total", "pd_prefill_errors_total", "pd_decode_errors_total", "pd_retries_total"):
        assert series(router, name) == {}


def test_a_worker_is_in_the_series_of_its_stage_from_the_start(harness):
    prefill, decode = handing_over(harness), harness.worker()
    text = staged(harness, [prefill], [decode]).server.metrics_text()
    for stage, own, other in (("prefill", prefill, decode), ("decode", decode, prefill)):
        for what in ("requests", "errors"):
            assert f'vllm_router_pd_{stage}_{what}_total{{worker="{own.url}"}} 0' in text
            assert f'vllm_router_pd_{stage}_{what}_total{{worker="{other.url}"}}' not in text


def test_no_client_makes_a_series_of_its_own(harness):
    router = staged(harness, [handing_over(harness)], [harness.worker()], pd_extra_routes=["/a", "/b"])
    client = harness.client(router)
    for path in ("/a", "/b"):
        assert ask(client, path).status == 200
    must_become(router, "pd_requests_total", {"other": 2})


@pytest.mark.parametrize(
    ("prefill_fails", "decode_fails", "failed"),
    [("500", "", "prefill"), ("refuse", "", "prefill"), ("", "500", "transfer"), ("", "refuse", "decode")],
)
def test_what_fails_counts_at_its_worker_and_by_what_had_failed(harness, prefill_fails, decode_fails, failed):
    def failing(how):
        return [harness.refusing_port()] if how == "refuse" else [responding(harness, int(how), b"no")]

    bad = failing(prefill_fails or decode_fails)
    prefills = [*(bad if prefill_fails else []), handing_over(harness)]
    decodes = [*(bad if decode_fails else []), harness.worker()]
    router = staged(harness, prefills, decodes)
    client = harness.client(router)
    for _ in range(2):  # turns begin with either
        assert ask(client).status == 200
    stage, other = ("prefill", "decode") if prefill_fails else ("decode", "prefill")
    eventually(lambda: series(router, "pd_retries_total").keys() == {failed}, "a retry")
    assert series(router, f"pd_{stage}_errors_total").keys() == {bad[0].url}
    assert series(router, f"pd_{other}_errors_total") == {}
    assert series(router, "pd_errors_total") == {}


def test_a_request_without_a_worker_of_a_stage_is_an_error_of_selection(harness):
    router = staged(harness, [], [harness.worker()])
    assert ask(harness.client(router)).status == 503
    must_become(router, "pd_errors_total", {"server_selection": 1})
    assert series(router, "pd_requests_total") == {}


def test_a_workers_own_error_is_one_of_the_pair(harness):
    bad = responding(harness, 400, b"no")
    router = staged(harness, [bad], [harness.worker()])
    assert ask(harness.client(router)).status == 400
    must_become(router, "pd_errors_total", {"non_retryable_error": 1})
    assert series(router, "pd_prefill_errors_total") == {bad.url: 1}


def test_a_stream_that_breaks_off_counts_at_its_decode_worker(harness):
    def cut(connection, _message):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        connection.close()

    broken = harness.worker(cut)
    router = staged(harness, [handing_over(harness)], [broken])
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=BODY))
    client.read_to_end()
    must_become(router, "pd_stream_errors_total", {broken.url: 1})
    assert series(router, "pd_decode_errors_total") == {}
    assert series(router, "pd_errors_total") == {"worker_closed": 1}


@pytest.mark.parametrize("state", ["prefill", "decode", "generating"])
def test_a_client_that_leaves_counts_by_what_was_under_way(harness, state):
    def wait(connection, _message):
        if state == "generating":
            connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        connection.ending()

    waiting = harness.worker(wait)
    prefill = waiting if state == "prefill" else handing_over(harness)
    decode = harness.worker() if state == "prefill" else waiting
    router = staged(harness, [prefill], [decode], pd_grace_ms=0)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=BODY))
    waiting.wait_for_requests()
    if state == "generating":
        client.read_until(b"hello\r\n")
    client.close()
    must_become(router, "pd_cancelled_total", {state: 1})
    router.must_rest()


def test_members_that_are_removed_count_by_name(harness):
    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    router = staged(harness, [prefill], [harness.worker()])
    client = harness.client(router)
    for prompt in ("hi", ["a", "b"]):
        own = {"kv_transfer_params": {}, "bootstrap_host": "h", "bootstrap_port": 1}
        assert ask(client, prompt=prompt, **own).status == 200
    must_become(router, "pd_removed_members_total", {"kv_transfer_params": 2, "bootstrap": 4})
