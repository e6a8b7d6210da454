"""cpp/proxy/sessions: where conversations are, for requests without a prompt and for people."""

import json

import pytest

from tests.fakes.wire import eventually, request, response

CHAT = "/v1/chat/completions"
SWITCH = (
    *(("Connection", "Upgrade"), ("Upgrade", "websocket")),
    *(("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")),
)
USAGE = (
    b'{"usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}}'
)


def respond(connection, message):
    if message.get("upgrade") is not None:
        connection.send(response(426, b"no"))
    else:
        connection.send(response(200, USAGE, ("Content-Type", "application/json")))


@pytest.fixture
def fleet(harness):
    """Three workers behind a router that compares prompts, and a client."""
    workers = [harness.worker(respond) for _ in range(3)]
    router = harness.router(*workers, policy="auto", health_check_interval_secs=3600)
    return workers, harness.client(router)


def chat(client, text, *fields):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    assert client.ask("POST", CHAT, ("Content-Type", "application/json"), *fields, body=body).status == 200


def served(workers, target):
    """The workers that got requests for this target, one for each request."""
    return [
        number for number, worker in enumerate(workers) for got in worker.requests if got.target == target
    ]


def sessions(client, query=""):
    return json.loads(client.ask("GET", f"/admin/sessions{query}").body)


@pytest.mark.parametrize("name", ["session-id", "X-Session-ID", "X-Claude-Code-Session-ID"])
def test_a_websocket_goes_where_its_session_is_though_load_would_not(harness, name):
    def answer(connection, message):
        if b"busy" in (message.body or b""):
            gate.wait()
        respond(connection, message)

    workers = [harness.worker(answer) for _ in range(3)]
    gate = workers[0].gate()
    router = harness.router(*workers, policy="auto")
    client, other = harness.client(router), harness.client(router)
    chat(client, "hello " * 400, (name, "s"))
    home = served(workers, CHAT)[0]
    busy = json.dumps({"messages": [{"role": "user", "content": "hello " * 400 + "busy"}]}).encode()
    other.send(request("POST", CHAT, body=busy))
    workers[home].wait_for_requests(2)
    for _ in range(4):
        client.send(request("GET", "/v1/responses", *SWITCH, (name, "s")))
        assert client.read_response().status == 426
    assert served(workers, "/v1/responses") == [home] * 4
    gate.open()
    assert other.read_response().status == 200


def test_a_session_whose_worker_has_left_is_placed_by_load(fleet):
    workers, client = fleet
    chat(client, "hello", ("session-id", "s"))
    home = served(workers, CHAT)[0]
    assert client.ask("POST", f"/remove_worker?url={workers[home].url}").status == 200
    client.send(request("GET", "/v1/responses", *SWITCH, ("session-id", "s")))
    assert client.read_response().status == 426
    assert home not in served(workers, "/v1/responses")
    assert sessions(client)["sessions"][0]["worker"] is None


def test_the_page_says_where_each_conversation_is_and_what_it_found(fleet):
    workers, client = fleet
    chat(client, "hello " * 200, ("X-Claude-Code-Session-ID", "s"))
    chat(client, "hello " * 200, ("X-Claude-Code-Session-ID", "s"))
    chat(client, "other " * 200, ("X-Claude-Code-Session-ID", "s"), ("X-Claude-Code-Agent-ID", "a"))
    chat(client, "third " * 200, ("X-Session-ID", "t"), ("X-Parent-Session-ID", "s"))
    chat(client, "nobody")
    eventually(lambda: sessions(client)["known"] == 3, "the turns")
    page = sessions(client)
    assert [(row["session"], row.get("agent"), row.get("parent")) for row in page["sessions"]] == [
        *(("t", None, "s"), ("s", "a", None), ("s", None, None)),
    ]
    main = page["sessions"][2]
    assert (main["turns"], main["moves"], main["unit"]) == (2, 0, "blocks")
    assert main["matched"] == main["total"] > 0
    assert (main["prompt_tokens"], main["cached_tokens"]) == (9, 8)
    assert main["worker"] in [worker.url for worker in workers]
    assert len(sessions(client, "?session=s")["sessions"]) == 2
    assert sessions(client, "?session=%73")["known"] == 3
    assert sessions(client, "?session=u")["sessions"] == []
    assert client.ask("GET", "/admin/sessions?session=%7").status == 400


def test_a_request_that_fails_is_no_turn(harness):
    worker = harness.worker(lambda connection, _message: connection.send(response(400, b"{}")))
    client = harness.client(harness.router(worker, policy="auto"))
    client.ask("POST", CHAT, ("session-id", "s"), body=b"{}")
    client.ask("POST", "/tokenize", ("session-id", "s"), body=b"{}")
    assert sessions(client) == {"known": 0, "sessions": []}


def test_the_request_that_is_a_sessions_last_ends_it(harness):
    router = harness.router(harness.worker(respond), policy="sticky_least_loaded", decision_headers=True)
    client = harness.client(router)

    def reason(*fields):
        sent = client.ask("POST", CHAT, ("X-Dynamo-Session-ID", "s"), *fields, body=b"{}")
        router.must_rest()
        return sent.get("x-vllm-router-reason")

    last = ("X-Dynamo-Session-Final", "true")
    assert [reason(), reason(), reason(last), reason()] == ["sticky_new", "sticky", "sticky", "sticky_new"]
