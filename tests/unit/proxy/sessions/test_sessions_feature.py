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
    upgrades = message.get("upgrade") is not None
    connection.send(
        response(426, b"no") if upgrades else response(200, USAGE, ("Content-Type", "application/json"))
    )


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
def test_a_websocket_goes_where_its_session_is(fleet, name):
    workers, client = fleet
    for number in range(6):
        chat(client, f"{number} " * 400, (name, f"s{number}"))
    home = {f"s{n}": worker for n in range(6) for worker in range(3) if has_prompt(workers[worker], n)}
    assert len(set(home.values())) == 3
    for session, worker in home.items():
        client.send(request("GET", f"/v1/responses?{session}", *SWITCH, (name, session)))
        assert client.read_response().status == 426
        assert served(workers, f"/v1/responses?{session}") == [worker]


def has_prompt(worker, number):
    return any(f"{number} {number} ".encode() in (got.body or b"") for got in worker.requests)


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
    assert (main["turns"], main["moves"], main["unit"], main["model"]) == (2, 0, "blocks", "m")
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
