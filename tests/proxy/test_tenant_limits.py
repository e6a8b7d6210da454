"""Limits of tenants on the wire: who is rejected and told what, and what a request costs its tenant.

Rates are one per minute, so that nothing comes back while a test runs; the burst is what is there at first.
"""

import json
import re

import pytest

from tests.fakes.cached import Engine, body_of
from tests.fakes.harness import QUIET, Streaming, error_of
from tests.fakes.wire import chunk, chunked, eventually, request, response
from tests.proxy.test_websocket import ASK, SWITCHED
from vllm_router import _core

PATH = "/v1/completions"
JSON = ("Content-Type", "application/json")
BODY = b'{"prompt":"hi"}'
USAGE = {"prompt_tokens": 10, "completion_tokens": 3}
NO_POLLS = {"load_poll_interval_secs": 0}
# 1,440 tokens, and a minute until there is one more.
TOKENS = "tenant tokens_per_minute=1 burst_ms=86400000"
# What such a request reserves: its bytes over 4, and the response that is expected.
RESERVED = len(BODY) // 4 + 256
KEYS = "sk-a tenant=a\nsk-b tenant=b\nsk-free tenant=free\n"


def key(name):
    return ("Authorization", f"Bearer sk-{name}")


def whole(connection, _message):
    connection.send(response(200, json.dumps({"usage": USAGE}).encode(), JSON))


def requests_of(count):
    """Lines by which all tenants have so many requests, and a minute until there is one more."""
    return f"tenant requests_per_minute=1 burst_ms={60_000 * count} default"


def ask(client, *fields, path=PATH, body=BODY):
    return client.ask("POST", path, JSON, *fields, body=body)


def left(answer, what="tokens"):
    value = answer.get(f"x-ratelimit-remaining-{what}")
    return None if value is None else int(value)


def rejected(answer, code, retry_after):
    """`retry_after`: seconds, some of which may have passed; None: no field."""
    assert (answer.status, error_of(answer)["code"]) == (429, code)
    said = answer.get("retry-after")
    if retry_after is None:
        assert said is None
    else:
        assert max(1, retry_after - 30) <= int(said) <= retry_after
    return error_of(answer)["message"]


def series(router, family):
    found = re.findall(
        rf"^vllm_router_{family}(?:\{{([^}}]*)\}})? (\S+)$", router.server.metrics_text(), re.MULTILINE
    )
    return {",".join(re.findall(r'"([^"]*)"', labels)): float(value) for labels, value in found}


def tenants_of(harness, router):
    """Those with something under way or used, as the page says, and how many requests are under way."""
    page = json.loads(harness.client(router).ask("GET", "/admin/admission").body)
    return [(row["tenant"], row["open"]) for row in page["tenants"]]


@pytest.fixture
def start(harness, tmp_path):
    """A router with keys of the tenants a, b and free."""
    path = tmp_path / "keys"
    path.write_text(KEYS)

    def start(worker, lines, **options):
        options = {"client_api_key_file": str(path), **NO_POLLS, **options}
        return harness.router(worker, admission_config=lines, **options)

    return start


def test_a_tenant_has_so_many_requests_and_no_other_tenant_pays(harness, start):
    lines = f"{requests_of(2)}\ntenant free"
    router = start(harness.worker(whole), lines)
    client = harness.client(router)
    answers = [ask(client, key("a")) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert [left(answer, "requests") for answer in answers] == [1, 0, 0]
    assert [answer.get("x-ratelimit-limit-requests") for answer in answers] == ["2"] * 3
    assert left(answers[0]) is None  # there is no limit of tokens
    message = rejected(answers[2], "tenant_rate_limited", 60)
    assert message.startswith('Tenant "a" is limited to 1 requests per minute, 2 of them at once')
    assert left(ask(client, key("b")), "requests") == 1
    free = [ask(client, key("free")) for _ in range(4)]
    assert {(answer.status, left(answer, "requests")) for answer in free} == {(200, None)}
    client.must_be_open()


def test_rejections_are_counted_by_tenant_and_reason(harness, start):
    router = start(harness.worker(whole), requests_of(1))
    client = harness.client(router)
    for name in "aaab":
        ask(client, key(name))
    router.must_rest()
    assert series(router, "tenant_rejected_total") == {
        "a,tenant_rate_limited": 2,
        "other,tenant_rate_limited": 0,
        "other,tenant_tokens_limited": 0,
        "other,tenant_concurrency": 0,
    }
    assert series(router, "admission_rejected_total") == {"tenant_rate_limited": 2}
    assert series(router, "limited_tenants") == {"": 2}
    assert series(router, "tenant_limits_shared_total") == {"": 0}


def test_a_named_tenant_shares_no_limits(harness, start):
    lines = f"{requests_of(2)}\ntenant requests_per_minute=1 burst_ms=120000 a"
    router = start(harness.worker(whole), lines, max_tenants=1)
    client = harness.client(router)
    assert [left(ask(client, key(name)), "requests") for name in ("b", "free", "a")] == [1, 1, 1]
    router.must_rest()
    assert series(router, "tenant_limits_shared_total") == {"": 1}
    assert series(router, "limited_tenants") == {"": 2}


def test_the_router_s_own_pages_cost_nothing(harness, start):
    client = harness.client(start(harness.worker(whole), requests_of(1)))
    for path in ("/v1/models", "/health", "/admin/nothing"):
        assert left(client.ask("GET", path, key("a")), "requests") is None
    assert ask(client, key("a")).status == 200


def test_without_limits_there_are_no_fields(harness, start):
    client = harness.client(start(harness.worker(whole), "tenant weight=4 a"))
    assert not any("ratelimit" in name for name in ask(client, key("a")).names)


def test_what_reaches_no_worker_is_no_request(harness):
    client = harness.client(harness.router(admission_config=requests_of(2), **NO_POLLS))
    assert [(answer.status, left(answer, "requests")) for answer in (ask(client) for _ in range(9))] == [
        (503, 2)
    ] * 9


def test_what_the_rate_limit_rejects_is_no_request(harness):
    router = harness.router(
        harness.worker(whole), admission_config=requests_of(100), rate_limit_tokens_per_second=1, **NO_POLLS
    )
    client = harness.client(router)
    answers = [ask(client) for _ in range(9)]
    served = [answer.status for answer in answers].count(200)
    assert {error_of(answer)["code"] for answer in answers if answer.status != 200} == {"rate_limited"}
    assert left(answers[-1], "requests") == 100 - served


def test_who_leaves_before_a_worker_has_the_request_sent_none(harness):
    router = harness.router(harness.worker(whole), admission_config=requests_of(2), **NO_POLLS)
    leaver = harness.client(router)
    leaver.send(request("POST", PATH, JSON, body=BODY)[:-1])
    eventually(lambda: tenants_of(harness, router) == [("anonymous", 1)])
    leaver.close()
    eventually(lambda: tenants_of(harness, router) == [])
    assert left(ask(harness.client(router)), "requests") == 1


def test_what_a_worker_rejects_is_a_request(harness):
    def reject(connection, _message):
        connection.send(response(400, b'{"error":{"message":"no"}}', JSON))

    client = harness.client(
        harness.router(harness.worker(reject), admission_config=requests_of(2), **NO_POLLS)
    )
    assert [left(ask(client), "requests") for _ in range(2)] == [1, 0]


# ---- tokens


def test_tokens_are_reserved_and_settled_by_usage(harness):
    router = harness.router(harness.worker(whole), admission_config=f"{TOKENS} default", **NO_POLLS)
    client = harness.client(router)
    for turn in range(3):
        answer = ask(client)
        assert left(answer) == 1440 - 13 * turn - RESERVED
        assert answer.get("x-ratelimit-limit-tokens") == "1440"
        router.must_rest()


def test_no_spelling_of_a_path_is_free_of_the_limits(harness):
    router = harness.router(harness.worker(whole), admission_config=f"{TOKENS} default", **NO_POLLS)
    client = harness.client(router)
    for turn in range(2):
        assert left(ask(client, path="/v1/%63ompletions")) == 1440 - 13 * turn - RESERVED
        router.must_rest()


def test_tokens_that_are_used_up(harness):
    usage = {"prompt_tokens": 1300, "completion_tokens": 50}

    def spend(connection, _message):
        connection.send(response(200, json.dumps({"usage": usage}).encode(), JSON))

    router = harness.router(harness.worker(spend), admission_config=f"{TOKENS} default", **NO_POLLS)
    client = harness.client(router)
    assert ask(client).status == 200
    router.must_rest()
    answer = ask(client)
    missing = 1350 + RESERVED - 1440
    message = rejected(answer, "tenant_tokens_limited", 60 * missing)
    assert message.endswith(f"and this request needs {RESERVED}; see Retry-After.")
    assert (left(answer), answer.get("x-should-retry")) == (90, None)
    router.must_rest()
    assert series(router, "admission_rejected_total") == {"tenant_tokens_limited": 1}


def test_a_request_above_the_whole_burst_is_not_to_be_repeated(harness):
    router = harness.router(
        harness.worker(whole), policy="auto", admission_config=f"{TOKENS} default", **NO_POLLS
    )
    client = harness.client(router)
    answer = ask(client, body=json.dumps({"prompt": "word " * 10_000}).encode())
    message = rejected(answer, "tenant_tokens_limited", None)
    assert message.endswith("since waiting does not help.")
    assert answer.get("x-should-retry") == "false"
    assert ask(client).status == 200  # it has taken nothing


RECORDING = ("Content-Type", "multipart/form-data; boundary=xy"), b"\0" * 20_000
LONG_PROMPT = JSON, json.dumps({"prompt": "word " * 10_000}).encode()


@pytest.mark.parametrize(
    ("policy", "path", "sent"),
    [
        ("auto", "/v1/audio/transcriptions", RECORDING),
        ("cache_aware", "/v1/audio/transcriptions", RECORDING),
        ("power_of_two", PATH, LONG_PROMPT),
    ],
    ids=["recording_auto", "recording_cache_aware", "unread_prompt"],
)
def test_a_body_of_which_no_prompt_is_read_needs_no_more_than_the_burst(harness, policy, path, sent):
    router = harness.router(
        harness.worker(whole), policy=policy, admission_config=f"{TOKENS} default", **NO_POLLS
    )
    field, body = sent
    answer = harness.client(router).ask("POST", path, field, body=body)
    assert (answer.status, left(answer)) == (200, 0)


def test_what_reaches_no_worker_costs_no_tokens(harness):
    router = harness.router(admission_config=f"{TOKENS} default", **NO_POLLS)
    client = harness.client(router)
    for _ in range(20):
        answer = ask(client)
        assert (answer.status, left(answer)) == (503, 1440 - RESERVED)
        router.must_rest()


def test_what_a_worker_rejects_costs_no_tokens(harness):
    def reject(connection, _message):
        connection.send(response(400, b'{"error":{"message":"no"}}', JSON))

    router = harness.router(harness.worker(reject), admission_config=f"{TOKENS} default", **NO_POLLS)
    client = harness.client(router)
    for _ in range(20):
        answer = ask(client)
        assert (answer.status, left(answer)) == (400, 1440 - RESERVED)
        router.must_rest()


def test_a_client_that_leaves_pays_what_was_reserved(harness):
    streaming = Streaming(harness)
    router = harness.router(streaming, admission_config=f"{TOKENS} default", **NO_POLLS)
    client = harness.client(router)
    client.send(request("POST", PATH, JSON, body=BODY))
    assert client.read_head().status == 200
    client.close()
    router.must_rest()
    streaming.gate.open()  # for the next one
    assert left(ask(harness.client(router))) == 1440 - 2 * RESERVED


EVENT = b'data: {"choices":[{"text":"a"}]}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = chunked(b"data: [DONE]\n\n")
STREAM = b'{"prompt":"hi","stream":true}'


@pytest.mark.parametrize(("count", "output"), [(400, 400), (9, 256)], ids=["long", "short"])
def test_a_stream_without_usage_costs_what_was_streamed(harness, count, output):
    worker = harness.worker(lambda connection, _: connection.send(HEAD + chunk(EVENT * count) + DONE))
    router = harness.router(worker, admission_config=f"{TOKENS} default", **NO_POLLS)
    client = harness.client(router)
    assert ask(client, body=STREAM).status == 200
    router.must_rest()
    used = len(STREAM) // 4 + output
    assert left(ask(client)) == 1440 - used - RESERVED


def test_a_client_that_leaves_before_the_usage_pays_what_was_streamed(harness):
    def respond(connection, _message):
        connection.send(HEAD + chunk(EVENT * 400))
        gate.wait()
        connection.send(DONE)

    worker = harness.worker(respond)
    gate = worker.gate()
    router = harness.router(worker, admission_config=f"{TOKENS} default", **NO_POLLS)
    client = harness.client(router)
    client.send(request("POST", PATH, JSON, body=STREAM))
    assert client.read_head().status == 200
    got = b""
    while got.count(b"data:") < 400:
        got += client.read_chunk()
    client.close()
    router.must_rest()
    gate.open()  # for the next one
    used = len(STREAM) // 4 + 400
    assert left(ask(harness.client(router))) == 1440 - used - RESERVED


def test_a_retry_costs_nothing_more(harness):
    router = harness.router(
        harness.refusing_port(),
        harness.worker(whole),
        admission_config=f"{TOKENS} requests_per_minute=1 default",
        disable_retries=False,
        retry_initial_backoff_ms=1,
        **NO_POLLS,
    )
    client = harness.client(router)
    for turn in range(4):  # by turns, one of two is sent to the port that refuses
        answer = ask(client)
        assert (answer.status, left(answer, "requests")) == (200, 1440 - turn - 1)
        assert left(answer) == 1440 - 13 * turn - RESERVED
        router.must_rest()
    assert sum(series(router, "retries_total").values()) > 0


def test_a_response_from_the_cache_is_a_request_without_tokens(harness):
    engine = Engine(harness)
    router = harness.router(
        engine,
        admission_config=f"{TOKENS} requests_per_minute=1 default",
        response_cache=True,
        response_cache_routes=["/v1/chat/completions"],
        **NO_POLLS,
    )
    client = harness.client(router)
    answers = []
    for _ in range(3):
        answers.append(ask(client, path="/v1/chat/completions", body=body_of()))
        router.must_rest()
    assert engine.count == 1
    assert [left(answer, "requests") for answer in answers] == [1439, 1438, 1437]
    assert [left(answer) for answer in answers[1:]] == [1440 - 9] * 2


# ---- requests at a time


def test_requests_at_a_time(harness, start):
    streaming = Streaming(harness)
    router = start(streaming, "tenant concurrency=1 default")
    first, second = harness.client(router), harness.client(router)
    first.send(request("POST", PATH, JSON, key("a"), body=BODY))
    assert first.read_head().status == 200
    answer = ask(second, key("a"))
    message = rejected(answer, "tenant_concurrency", 1)
    assert message.startswith('Tenant "a" has 1 requests under way, which is its limit')
    assert left(answer, "requests") is None
    other = harness.client(router)
    other.send(request("POST", PATH, JSON, key("b"), body=BODY))
    assert other.read_head().status == 200
    streaming.gate.open()
    for client in (first, other):
        client.read_to_last_chunk()
    eventually(lambda: ask(second, key("a")).status == 200)


def streamed(connection, _message):
    connection.send(HEAD + chunk(EVENT * 3) + DONE)


def empty(connection, _message):
    connection.send(response(200, b"", JSON))


def failing(connection, _message):
    connection.send(response(500, b'{"error":{"message":"no"}}', JSON))


@pytest.mark.parametrize(
    ("respond", "status"),
    [(whole, 200), (streamed, 200), (empty, 200), (failing, 500), (None, 503)],
    ids=["whole", "streamed", "empty", "failing", "no_worker"],
)
def test_who_has_a_response_may_send_the_next_request_at_once(harness, respond, status):
    workers = [] if respond is None else [harness.worker(respond)]
    router = harness.router(
        *workers, policy="random", admission_config="tenant concurrency=1 default", threads=4, **NO_POLLS
    )
    clients = [harness.client(router) for _ in range(8)]
    assert {ask(clients[turn % 8]).status for turn in range(800)} == {status}


def test_a_response_from_the_cache_holds_no_place_once_it_is_there(harness):
    router = harness.router(
        Engine(harness),
        admission_config="tenant concurrency=1 default",
        response_cache=True,
        response_cache_routes=["/v1/chat/completions"],
        threads=4,
        **NO_POLLS,
    )
    clients = [harness.client(router) for _ in range(8)]
    for turn in range(800):
        assert ask(clients[turn % 8], path="/v1/chat/completions", body=body_of()).status == 200


def test_a_websocket_is_one_of_them(harness):
    def switch(connection):
        connection.read_request()
        connection.send(SWITCHED)
        connection.ending()

    router = harness.router(
        harness.worker(script=switch), admission_config="tenant concurrency=1 default", **NO_POLLS
    )
    tunnel = harness.client(router)
    tunnel.send(ASK)
    assert tunnel.read_head().status == 101
    rejected(ask(harness.client(router)), "tenant_concurrency", 1)
    tunnel.close()
    router.must_rest()
    again = harness.client(router)
    again.send(ASK)
    assert again.read_head().status == 101


# ---- Anthropic's API, reloads, the page


def test_fields_of_anthropic_s_api(harness):
    lines = f"{TOKENS} requests_per_minute=1 default"
    client = harness.client(harness.router(harness.worker(whole), admission_config=lines, **NO_POLLS))
    answer = ask(client, path="/v1/messages", body=b'{"model":"m","max_tokens":9,"messages":[]}')
    for what in ("requests", "tokens"):
        for part in ("limit", "remaining"):
            ours = answer.get(f"x-ratelimit-{part}-{what}")
            assert ours == answer.get(f"anthropic-ratelimit-{what}-{part}") is not None
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer.get(f"anthropic-ratelimit-{what}-reset")
        )
    assert re.fullmatch(r"1m0s|[345]\d(\.\d+)?s", answer.get("x-ratelimit-reset-requests"))
    assert ask(client).get("anthropic-ratelimit-requests-limit") is None


def reload(router, lines):
    settings = {name: value for name, value in QUIET.items() if name in _core.Server.live_option_names}
    router.server.apply({**settings, **NO_POLLS, "admission_config": lines}, None, 0.0, 0.0, False)


def test_a_reload_keeps_what_was_used(harness):
    router = harness.router(harness.worker(whole), admission_config=requests_of(3), **NO_POLLS)

    client = harness.client(router)
    assert [left(ask(client), "requests") for _ in range(2)] == [2, 1]
    reload(router, requests_of(4))
    assert left(ask(client), "requests") == 1
    reload(router, "tenant weight=4 default")
    assert left(ask(client), "requests") is None
    reload(router, requests_of(3))
    assert left(ask(client), "requests") == 0
    rejected(ask(client), "tenant_rate_limited", 60)


def test_tenants_that_a_gateway_invents_share_limits_once_the_table_is_full(harness):
    router = harness.router(
        harness.worker(whole),
        admission_config=requests_of(1),
        max_tenants=2,
        tenant_header="x-tenant",
        trusted_addresses=["127.0.0.1"],
        **NO_POLLS,
    )
    client = harness.client(router)
    statuses = [ask(client, ("x-tenant", f"t{number}")).status for number in range(600)]
    assert statuses.count(200) <= 2 + 256
    assert series(router, "tenant_limits_shared_total") == {"": 598}
    assert series(router, "limited_tenants") == {"": 2}


def test_the_page_says_what_is_left(harness):
    streaming = Streaming(harness)
    lines = "tenant concurrency=3 requests_per_minute=1 tokens_per_minute=1 burst_ms=86400000 default"
    router = harness.router(streaming, admission_config=lines, **NO_POLLS)
    client = harness.client(router)
    client.send(request("POST", PATH, JSON, body=BODY))
    assert client.read_head().status == 200
    page = json.loads(harness.client(router).ask("GET", "/admin/admission").body)
    (row,) = page["tenants"]
    assert (row["tenant"], row["open"], row["concurrency"]) == ("anonymous", 1, 3)
    for what, used in (("requests", 1), ("tokens", RESERVED)):
        assert row[what]["per_minute"] == 1
        assert (row[what]["limit"], row[what]["remaining"]) == (1440, 1440 - used)
        assert 0 <= used * 60_000 - row[what]["reset_ms"] < 60_000
    streaming.gate.open()
    client.read_to_last_chunk()
