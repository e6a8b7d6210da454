"""GET /admin/receipts before simulated workers: what caches were expected to hold, and what came of it."""

import contextlib
import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fakes.harness import Client, Harness, error_of
from tests.fakes.wire import eventually, response
from vllm_router.testing import SimulatedWorker

COMPLETIONS = "/v1/completions"
PROMPT = "the permission users. offer, developers license " * 20
MATCHING = ["auto", "cache_aware", "kv_aware", "kv_logit", "kv_overlap", "vllm_cache_aware"]
OTHERS = ["round_robin", "least_load", "consistent_hash", "prefix_aware"]


@pytest.fixture
def simulated(harness: Harness) -> Iterator[Callable[..., SimulatedWorker]]:
    with contextlib.ExitStack() as stack:

        def start(**options: Any) -> SimulatedWorker:
            with harness.keeping_descriptors():
                return stack.enter_context(
                    SimulatedWorker(engine="instant", **{"cache_blocks": 1 << 12} | options)
                )

        yield start


def complete(client: Client, prompt: str = PROMPT, request_id: str | None = None, **more: Any) -> Any:
    fields = () if request_id is None else (("X-Request-Id", request_id),)
    body = json.dumps({"model": "simulated-model", "prompt": prompt, "max_tokens": 4} | more).encode()
    got = client.ask("POST", COMPLETIONS, *fields, body=body)
    assert got.status == 200
    return got


def page_of(client: Client, query: str = "") -> dict[str, Any]:
    got = client.ask("GET", f"/admin/receipts{query}")
    assert got.status == 200, got.body
    return json.loads(got.body)


def receipts_of(client: Client, query: str = "", count: int | None = None) -> list[dict[str, Any]]:
    """The receipts; waits for `count` of them, since each is written once its response has been sent."""
    if count is not None:
        eventually(lambda: len(page_of(client, query)["receipts"]) == count)
    return page_of(client, query)["receipts"]


# ---- what is predicted and reported


@pytest.mark.parametrize("policy", MATCHING)
def test_what_was_sent_before_is_predicted_and_what_the_worker_says_is_reported(harness, simulated, policy):
    worker = simulated()
    client = harness.client(harness.router(worker.url, policy=policy))
    complete(client)
    cached_before = worker.stats()["cached_tokens"]
    complete(client)
    second, first = receipts_of(client, count=2)
    assert first["predicted_cached_tokens"] == 0
    reported = worker.stats()["cached_tokens"] - cached_before
    assert second["reported_cached_tokens"] == reported > 0
    prompt_tokens = second["prompt_tokens"]
    # Up to the block that is not complete, and the token that is computed in any case.
    assert prompt_tokens - 40 <= second["predicted_cached_tokens"] <= prompt_tokens
    assert second["miss_tokens"] == max(0, second["predicted_cached_tokens"] - reported)
    assert second["best_match"]["worker"] == second["worker"] == worker.url
    assert second["foregone_tokens"] == 0
    names = ("policy", "model", "route", "status", "end", "attempts", "arm")
    assert [second[name] for name in names] == [
        policy,
        "simulated-model",
        COMPLETIONS,
        200,
        "done",
        1,
        "policy",
    ]


@pytest.mark.parametrize("policy", OTHERS)
def test_a_policy_that_matches_nothing_predicts_nothing(harness, simulated, policy):
    client = harness.client(harness.router(simulated().url, policy=policy))
    complete(client)
    (receipt,) = receipts_of(client, count=1)
    names = ("predicted_cached_tokens", "best_match", "foregone_tokens", "miss_tokens")
    assert [receipt[name] for name in names] == [None] * 4
    assert receipt["reported_cached_tokens"] == 0


def test_a_worker_that_restarted_misses_the_whole_prediction(harness, simulated):
    worker = simulated()
    client = harness.client(harness.router(worker.url, policy="auto"))
    complete(client)
    urllib.request.urlopen(f"{worker.url}/reset_prefix_cache", data=b"", timeout=10).close()
    complete(client)
    second, _ = receipts_of(client, count=2)
    assert second["miss_tokens"] == second["predicted_cached_tokens"] > 0
    assert receipts_of(client, "?min_miss_tokens=1") == [second]


def test_a_stream_without_usage_reports_nothing(harness, simulated):
    client = harness.client(harness.router(simulated().url, policy="auto"))
    complete(client)
    complete(client, stream=True)
    silent, _ = receipts_of(client, count=2)
    assert (silent["reported_cached_tokens"], silent["miss_tokens"]) == (None, None)
    assert silent["ttft_ms"] > 0
    assert page_of(client)["reported_share"] == 0.5


def test_what_load_was_preferred_to_is_foregone(harness, simulated):
    workers = [simulated(), simulated()]
    router = harness.router(
        *(worker.url for worker in workers),
        policy="cache_aware",
        routing={"balance_abs_threshold": 0, "balance_rel_threshold": 1.0},
    )
    client = harness.client(router)
    complete(client)
    (first,) = receipts_of(client, count=1)
    # Two requests that do not end are at the holder.
    tickets = [router.core.select(prompt="x", among=[first["worker"]]) for _ in range(2)]
    complete(client)
    second = receipts_of(client, count=2)[0]
    assert second["reason"] == "load_balance"
    assert second["worker"] != first["worker"]
    assert second["best_match"]["worker"] == first["worker"]
    assert second["foregone_tokens"] == second["best_match"]["cached_tokens"] > 0
    assert second["load"] == {"open": 0, "best_open": 2, "queued_tokens": 0}
    for ticket in tickets:
        ticket.finish()


# ---- attempts


def test_each_worker_that_was_attempted_counts(harness):
    busy = harness.worker(lambda connection, _: connection.send(response(503, b"busy")))
    healthy = harness.worker()
    router = harness.router(
        busy,
        harness.refusing_port(),
        healthy,
        policy="round_robin",
        disable_retries=False,
        retry_max_retries=4,
        retry_initial_backoff_ms=1,
        disable_circuit_breaker=True,
        health_check_interval_secs=0,
    )
    client = harness.client(router)
    attempts = []
    for number in range(3):
        complete(client, request_id=f"r{number}")
        attempts.append(receipts_of(client, count=number + 1)[0])
    assert {receipt["worker"] for receipt in attempts} == {healthy.url}
    assert sorted(receipt["attempts"] for receipt in attempts)[-1] == 3


def test_a_client_that_left_has_a_receipt(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker)
    client, other = harness.client(router), harness.client(router)
    client.send(b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\n{}")
    worker.wait_for_requests(1)
    client.close()
    (receipt,) = receipts_of(other, count=1)
    assert (receipt["end"], receipt["status"], receipt["attempts"]) == ("client_gone", 0, 1)


# ---- the endpoints


def test_one_receipt_by_its_request_id(harness, simulated):
    client = harness.client(harness.router(simulated().url))
    complete(client, request_id="of/the client")
    (listed,) = receipts_of(client, count=1)
    assert listed["request_id"] == "of/the client"
    got = client.ask("GET", "/admin/receipts/of%2Fthe%20client")
    assert json.loads(got.body) == listed
    missing = client.ask("GET", "/admin/receipts/another")
    assert (missing.status, error_of(missing)["message"].split(";")[0]) == (
        404,
        'no receipt is kept of request "another"',
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("last=0", 'last is "0"; it is the number of receipts and must be a whole number between 1 and 1000'),
        ("wroker=x", 'receipts have no parameter "wroker"; there are last, worker'),
        ("since=%zz", 'the query parameter "since" is "%zz"; a \'%\' in it must precede two'),
    ],
)
def test_a_wrong_filter_gets_400_that_says_what_is_possible(harness, query, message):
    got = harness.client(harness.router()).ask("GET", f"/admin/receipts?{query}")
    assert got.status == 400
    assert error_of(got)["message"].startswith(message)


def test_one_request_in_so_many_has_candidates(harness, simulated):
    workers = [simulated(), simulated()]
    router = harness.router(*(worker.url for worker in workers), policy="auto", receipt_detail_every=3)
    client = harness.client(router)
    for number in range(6):
        complete(client, request_id=f"r{number}")
    with_candidates = [
        receipt["request_id"] for receipt in receipts_of(client, count=6) if "candidates" in receipt
    ]
    assert with_candidates == ["r5", "r2"]
    shown = json.loads(client.ask("GET", "/admin/receipts/r5").body)
    assert shown["candidates"][0]["worker"] == shown["worker"]
    assert {one["worker"] for one in shown["candidates"]} == {worker.url for worker in workers}
    assert all(set(one) == {"worker", "open", "cached_tokens", "cost"} for one in shown["candidates"])


def test_without_receipts_the_pages_say_which_flag_keeps_them(harness, simulated):
    client = harness.client(harness.router(simulated().url, routing={"receipts": 0}))
    complete(client)
    for path in ("/admin/receipts", "/admin/receipts/r0"):
        got = client.ask("GET", path)
        assert got.status == 404
        assert error_of(got)["message"] == (
            "receipts is 0, so no receipts are kept; start the router with --receipts 8192, the default"
        )


def test_nothing_of_the_request_itself_is_in_it(harness, simulated):
    client = harness.client(harness.router(simulated().url, receipt_detail_every=1))
    body = json.dumps({"model": "simulated-model", "prompt": "hidden-prompt", "user": "hidden-user"}).encode()
    got = client.ask(
        "POST", f"{COMPLETIONS}?key=hidden-query", ("Authorization", "Bearer hidden-key"), body=body
    )
    assert got.status == 200
    receipts_of(client, count=1)
    assert b"hidden" not in client.ask("GET", "/admin/receipts").body


# ---- two workers


def test_a_pair_names_its_prefill_worker(harness, simulated):
    prefill, decode = simulated(stage="prefill"), simulated(stage="decode")
    router = harness.router(routing={"prefill_urls": [prefill.url], "decode_urls": [decode.url]})
    client = harness.client(router)
    complete(client)
    (receipt,) = receipts_of(client, count=1)
    assert (receipt["prefill_worker"], receipt["worker"]) == (prefill.url, decode.url)
    assert receipt["attempts"] == 2
    assert receipt["reported_cached_tokens"] is None  # what decode has cached came from prefill
