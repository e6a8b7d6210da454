"""Responses and conversations that engines store: whoever names one is for the worker that made it.

mending row 20: GET, cancel and DELETE of /v1/responses/{id} went to any worker and found 0 to 3 of 20.
"""

import itertools
import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, eventually, request, response

PATH = "/v1/responses"
CONVERSATIONS = "/v1/conversations"
NUMBERS = itertools.count(1)
NOT_STORED = b'{"error": {"code": "not_stored"}}'
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def engine(harness, **options):
    """Makes responses, and knows those that it made; what names another one is 404."""

    def answer(connection, message):
        parts = message.target.partition("?")[0].split("/")
        known = len(parts) < 4 or parts[3] in worker.made
        if message.method == "POST" and parts == ["", "v1", "responses"]:
            body = json.loads(message.body)
            named = body.get("conversation")
            conversation = named["id"] if isinstance(named, dict) else named
            known = {body.get("previous_response_id"), conversation} <= {None, *worker.made}
        if message.method == "POST" and message.target == CONVERSATIONS:
            worker.made.append(f"conv_{next(NUMBERS)}")
            made = {"id": worker.made[-1], "object": "conversation", "worker": worker.port}
            connection.send(response(200, json.dumps(made).encode()))
            return
        if message.target == "/health" and worker.failing:
            connection.send(response(503, b""))
            return
        if not known:
            connection.send(response(404, NOT_STORED))
            return
        if message.method == "POST" and len(parts) == 3:
            name = f"resp_{next(NUMBERS)}"
            worker.made.append(name)
            made = {"id": name, "object": "response", "worker": worker.port}
            if body.get("stream"):
                event = json.dumps({"response": made, "type": "response.created"}).encode()
                connection.send(STREAM + chunk(b"event: response.created\ndata: " + event + b"\n\n"))
                if worker.gate_of_streams is not None:
                    worker.gate_of_streams.wait()
                connection.send(
                    chunk(b'event: response.completed\ndata: {"response": {}}\n\n') + b"0\r\n\r\n"
                )
                return
            connection.send(response(200, json.dumps(made).encode()))
        else:
            connection.send(response(200, json.dumps({"worker": worker.port}).encode()))

    worker = harness.worker(answer, **options)
    worker.made = []
    worker.failing = False
    worker.gate_of_streams = None
    return worker


def ask(client, method, target, body=None, *fields):
    answer = client.ask(method, target, *fields, body=None if body is None else json.dumps(body).encode())
    assert answer.status == 200, answer.body
    return answer


def metric(router, name):
    lines = router.server.metrics_text().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"vllm_router_{name} "))


def lookups(router, result):
    return metric(router, f'response_lookups_total{{result="{result}"}}')


@pytest.mark.parametrize("policy", ["round_robin", "cache_aware", "consistent_hash"])
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_every_response_is_found_again(harness, policy, stream):
    """mending row 20: GET, cancel and DELETE, and input_items below it."""
    workers = [engine(harness) for _ in range(4)]
    router = harness.router(*workers, policy=policy)
    client = harness.client(router)
    for number in range(12):
        body = {"input": f"{number} " * 50, "stream": stream}
        made = ask(client, "POST", PATH, body).body
        if stream:
            name = json.loads(made.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
        else:
            name = json.loads(made)["id"]
        (port,) = (worker.port for worker in workers if name in worker.made)
        for method, below in [
            ("GET", ""),
            ("GET", "?stream=true&starting_after=3"),
            ("GET", "/input_items"),
            ("POST", "/cancel"),
            ("DELETE", ""),
        ]:
            answer = ask(client, method, f"{PATH}/{name}{below}")
            assert json.loads(answer.body)["worker"] == port
    assert (lookups(router, "known"), lookups(router, "found")) == (60, 0)
    assert metric(router, "known_responses") == 12


def test_a_conversation_goes_on_where_its_last_response_is(harness):
    """mending row 20: `previous_response_id` is 404 at every other worker."""
    workers = [engine(harness) for _ in range(4)]
    client = harness.client(harness.router(*workers, policy="round_robin"))
    turn = json.loads(ask(client, "POST", PATH, {"input": "hello"}).body)
    for _ in range(8):
        after = json.loads(
            ask(client, "POST", PATH, {"input": "and then?", "previous_response_id": turn["id"]}).body
        )
        assert after["worker"] == turn["worker"]
        turn = after


@pytest.mark.parametrize("policy", ["round_robin", "cache_aware", "consistent_hash"])
def test_a_conversation_is_at_the_worker_that_made_it(harness, policy):
    workers = [engine(harness) for _ in range(4)]
    router = harness.router(*workers, policy=policy)
    client = harness.client(router)
    homes = set()
    for number in range(8):
        made = json.loads(ask(client, "POST", CONVERSATIONS, {"metadata": {"topic": f"{number}"}}).body)
        name = made["id"]
        homes.add(made["worker"])
        for method, target, body in [
            ("GET", f"{CONVERSATIONS}/{name}", None),
            ("POST", f"{CONVERSATIONS}/{name}", {"metadata": {}}),
            ("POST", f"{CONVERSATIONS}/{name}/items", {"items": []}),
            ("GET", f"{CONVERSATIONS}/{name}/items?limit=1", None),
            ("GET", f"{CONVERSATIONS}/{name}/items/msg_1", None),
            ("POST", PATH, {"input": "x", "conversation": name}),
            ("POST", PATH, {"input": "x", "conversation": {"id": name}}),
            ("DELETE", f"{CONVERSATIONS}/{name}/items/msg_1", None),
            ("DELETE", f"{CONVERSATIONS}/{name}", None),
        ]:
            answer = json.loads(ask(client, method, target, body).body)
            assert answer["worker"] == made["worker"], (method, target)
    assert (lookups(router, "known"), lookups(router, "found"), lookups(router, "not_found")) == (72, 0, 0)
    assert len(homes) > 1


def test_a_conversation_of_another_router_is_searched_for(harness):
    """By its path, and by a body that names it."""
    workers = [engine(harness) for _ in range(4)]
    for number, worker in enumerate(workers):
        worker.made += [f"conv_a{number}", f"conv_b{number}"]
    router = harness.router(*workers, policy="round_robin")
    client = harness.client(router)
    for number, worker in enumerate(workers):
        for _ in range(2):
            answer = ask(client, "GET", f"{CONVERSATIONS}/conv_a{number}/items")
            assert json.loads(answer.body) == {"worker": worker.port}
            answer = ask(client, "POST", PATH, {"input": "x", "conversation": f"conv_b{number}"})
            assert json.loads(answer.body)["worker"] == worker.port
    assert (lookups(router, "found"), lookups(router, "known")) == (8, 8)
    targets = {message.target for worker in workers for message in worker.requests if message.method == "GET"}
    assert f"{CONVERSATIONS}/conv_b0" in targets


def test_a_name_that_no_engine_made_is_not_searched_for(harness):
    """Some clients name their sessions by `conversation`, of which engines know nothing."""
    workers = [harness.worker() for _ in range(3)]
    router = harness.router(*workers, policy="round_robin")
    client = harness.client(router)
    for _ in range(6):
        ask(client, "POST", PATH, {"input": "x", "conversation": "my chat"})
    asked = [message for worker in workers for message in worker.requests if message.target != "/health"]
    assert [message.method for message in asked] == ["POST"] * 6
    assert {lookups(router, result) for result in ("known", "found", "not_found")} == {0}


def test_a_conversation_stays_at_its_worker_while_that_drains(harness):
    workers = [engine(harness) for _ in range(3)]
    router = harness.router(*workers)
    client = harness.client(router)
    made = json.loads(ask(client, "POST", CONVERSATIONS, {}).body)
    (owner,) = (worker for worker in workers if worker.made)
    owner.gate_of_streams = owner.gate()
    body = {"input": "x", "conversation": made["id"], "stream": True}
    streaming, second = harness.client(router), harness.client(router)
    streaming.send(request("POST", PATH, body=json.dumps(body).encode()))
    eventually(lambda: len(owner.made) == 2)
    drain = second.ask("POST", "/admin/drain", body=json.dumps({"url": owner.url}).encode())
    assert drain.status // 100 == 2
    body["stream"] = False
    assert json.loads(ask(second, "POST", PATH, body).body)["worker"] == owner.port
    owner.gate_of_streams.open()
    assert streaming.read_response().status == 200
    owner.stop()
    router.core.remove_worker(owner.url)
    assert second.ask("GET", f"{CONVERSATIONS}/{made['id']}").status == 404
    assert lookups(router, "not_found") == 1


def test_one_that_another_router_passed_is_searched_for(harness):
    """mending row 20: asked of all, the first that has it; it is known from then on."""
    workers = [engine(harness) for _ in range(4)]
    made = json.loads(ask(harness.client(harness.router(*workers)), "POST", PATH, {"input": "x"}).body)
    router = harness.router(*workers)
    client = harness.client(router)
    key = ("Authorization", "Bearer its-own")
    for _ in range(3):
        assert json.loads(ask(client, "GET", f"{PATH}/{made['id']}", None, key).body) == {
            "worker": made["worker"]
        }
    assert (lookups(router, "found"), lookups(router, "known")) == (1, 2)
    for worker in workers:
        questions = [one for one in worker.requests if one.method == "GET"]
        # Others may not have been reached when it was found.
        assert len(questions) == 4 if worker.port == made["worker"] else len(questions) <= 1
        assert {one.get("authorization") for one in questions} <= {"Bearer its-own"}
        assert all(one.get("via") for one in questions)


def test_nobody_has_it(harness):
    workers = [engine(harness) for _ in range(3)]
    router = harness.router(*workers)
    client = harness.client(router)
    for method, target in [("GET", f"{PATH}/resp_no"), ("POST", f"{PATH}/resp_no/cancel")]:
        answer = client.ask(method, target)
        assert (answer.status, answer.body) == (404, NOT_STORED), "as the engine says it"
    body = json.dumps({"input": "x", "previous_response_id": "resp_no"}).encode()
    assert client.ask("POST", PATH, body=body).status == 404
    assert lookups(router, "not_found") == 3


@pytest.mark.parametrize(
    "name",
    ["x HTTP/1.1\r\nHost: w\r\n\r\nPOST /sleep HTTP/1.1\r\nHost: w\r\nX:", "x/../../load", "..", "x y"],
    ids=["head", "path", "dots", "blank"],
)
def test_a_body_writes_no_request_line(harness, name):
    """What a body names as its previous response was a part of a GET at every worker, as it was."""
    workers = [engine(harness) for _ in range(3)]
    router = harness.router(*workers)
    body = json.dumps({"input": "x", "previous_response_id": name}).encode()
    assert harness.client(router).ask("POST", PATH, body=body).status == 404
    asked = [message for worker in workers for message in worker.requests if message.target != "/health"]
    assert [(message.method, message.target) for message in asked] == [("POST", PATH)]
    assert lookups(router, "not_found") == 0


def test_a_search_does_not_wait_for_a_worker_that_hangs(harness):
    """The first that has it is enough."""
    silent = harness.worker(lambda connection, _: connection.ending())

    def late(connection, message):
        silent.wait_for_requests(1)
        answer(connection, message)

    good = engine(harness)
    answer, good.answer = good.answer, late
    good.made.append("resp_here")
    router = harness.router(silent, good, request_timeout_secs=60)
    answer = ask(harness.client(router), "GET", f"{PATH}/resp_here")
    assert json.loads(answer.body) == {"worker": good.port}
    assert silent.connections[0].wait_ended() in ("eof", "reset")


def amid_a_stream(harness):
    """A response whose first event has passed: its worker, its client, and another client."""
    workers = [engine(harness) for _ in range(3)]
    for worker in workers:
        worker.gate_of_streams = worker.gate()
    router = harness.router(*workers)
    first, second = harness.client(router), harness.client(router)
    first.send(request("POST", PATH, body=b'{"input": "x", "stream": true}'))
    eventually(lambda: metric(router, "known_responses") == 1, "the id was not learnt")
    (owner,) = (worker for worker in workers if worker.made)
    return owner, first, second


def test_a_response_may_be_cancelled_while_it_streams(harness):
    """Its id is known from its first event on."""
    owner, first, second = amid_a_stream(harness)
    answer = ask(second, "POST", f"{PATH}/{owner.made[0]}/cancel")
    assert json.loads(answer.body) == {"worker": owner.port}
    owner.gate_of_streams.open()
    assert first.read_response().status == 200


def test_its_worker_serves_it_while_it_drains(harness):
    owner, first, second = amid_a_stream(harness)
    drain = second.ask("POST", "/admin/drain", body=json.dumps({"url": owner.url}).encode())
    assert drain.status // 100 == 2
    assert json.loads(ask(second, "GET", f"{PATH}/{owner.made[0]}").body) == {"worker": owner.port}
    owner.gate_of_streams.open()
    assert first.read_response().status == 200


def test_its_worker_is_asked_while_it_is_unhealthy(harness):
    """Nobody else has it, and the check may be wrong."""
    workers = [engine(harness) for _ in range(3)]
    router = harness.router(*workers, health_check_interval_secs=0.05)
    client = harness.client(router)
    made = json.loads(ask(client, "POST", PATH, {"input": "x"}).body)
    (owner,) = (worker for worker in workers if worker.made)
    owner.failing = True
    position = workers.index(owner)
    eventually(lambda: not router.core.workers[position].healthy, "its failure is not found")
    assert json.loads(ask(client, "GET", f"{PATH}/{made['id']}").body) == {"worker": owner.port}


def test_a_worker_that_has_left_takes_its_responses_with_it(harness):
    workers = [engine(harness) for _ in range(3)]
    router = harness.router(*workers)
    client = harness.client(router)
    made = json.loads(ask(client, "POST", PATH, {"input": "x"}).body)
    (owner,) = (worker for worker in workers if worker.made)
    router.core.remove_worker(owner.url)
    assert client.ask("GET", f"{PATH}/{made['id']}").status == 404
    assert lookups(router, "not_found") == 1


def test_a_worker_that_is_gone_is_said_to_be(harness):
    workers = [engine(harness) for _ in range(3)]
    router = harness.router(*workers, disable_retries=False, retry_max_retries=2, retry_initial_backoff_ms=1)
    client = harness.client(router)
    made = json.loads(ask(client, "POST", PATH, {"input": "x"}).body)
    (owner,) = (worker for worker in workers if worker.made)
    owner.stop()
    answer = client.ask("GET", f"{PATH}/{made['id']}")
    assert answer.status == 502
    others = [worker for worker in workers if worker is not owner]
    assert not any(one.method == "GET" for worker in others for one in worker.requests)


def test_searches_are_few(harness):
    """One client that asks for what nobody has costs each worker 16 connections at most."""
    workers = [harness.worker(lambda connection, _: connection.ending()) for _ in range(2)]
    router = harness.router(*workers)
    clients = [harness.client(router) for _ in range(16)]
    for number, client in enumerate(clients):
        client.send(request("GET", f"{PATH}/resp_{number}"))
    for worker in workers:
        worker.wait_for_requests(16)
    answer = harness.client(router).ask("GET", f"{PATH}/resp_more")
    assert (answer.status, error_of(answer)["code"], answer.get("retry-after")) == (
        503,
        "response_search_busy",
        "1",
    )
    assert lookups(router, "busy") == 1
    for client in clients:  # who leaves ends its search
        client.close()
    for worker in workers:
        for connection in worker.connections:
            assert connection.wait_ended() in ("eof", "reset")


def test_a_full_worker_rejects_what_only_it_could_do_and_lets_it_be_read(harness):
    gated = engine(harness)
    other = engine(harness)
    gated.gate_of_streams = gated.gate()
    gated.made.append("resp_here")
    router = harness.router(gated, other, routing={"max_worker_requests": 1})
    body = {"input": "x", "previous_response_id": "resp_here", "stream": True}
    first, second = harness.client(router), harness.client(router)
    first.send(request("POST", PATH, body=json.dumps(body).encode()))
    eventually(lambda: len(gated.made) == 2)
    answer = second.ask("POST", PATH, body=json.dumps(body).encode())
    assert (answer.status, error_of(answer)["code"]) == (429, "queue_full")
    assert json.loads(ask(second, "GET", f"{PATH}/resp_here").body) == {"worker": gated.port}
    gated.gate_of_streams.open()
    assert first.read_response().status == 200


@pytest.mark.parametrize("operation", ["compact", "input_tokens", "else"])
def test_another_operation_is_no_stored_response(harness, operation):
    """Row 15: each was a GET at every host, and 404 or 503 for its client."""

    def answer(connection, message):
        connection.send(response(200 if message.method == "POST" else 404, b"{}"))

    workers = [harness.worker(answer) for _ in range(3)]
    router = harness.router(*workers, policy="round_robin", max_concurrent_requests=1, queue_size=0)
    client = harness.client(router)
    for _ in range(6):
        assert ask(client, "POST", f"{PATH}/{operation}", {"model": "m", "input": "x"}).body == b"{}"
    asked = [message for worker in workers for message in worker.requests if message.target != "/health"]
    assert [message.method for message in asked] == ["POST"] * 6
    assert [lookups(router, result) for result in ("known", "found", "not_found")] == [0, 0, 0]


@pytest.mark.parametrize("operation", ["compact", "input_tokens"])
def test_it_goes_where_the_response_is_that_its_body_names(harness, operation):
    """Row 15: what an operation continues is at one worker only."""
    workers = [engine(harness) for _ in range(4)]
    client = harness.client(harness.router(*workers, policy="round_robin"))
    made = json.loads(ask(client, "POST", PATH, {"input": "hello"}).body)
    for _ in range(4):
        body = {"input": "x", "previous_response_id": made["id"]}
        client.ask("POST", f"{PATH}/{operation}", body=json.dumps(body).encode())
    holder = next(worker for worker in workers if worker.port == made["worker"])
    assert sum(message.target.endswith(operation) for message in holder.requests) == 4


def test_a_name_of_the_clients_own_is_found_where_it_was_made(harness):
    """Row 15: a client of vLLM may choose the id, so one that looks different may be known."""

    def naming():
        names = []

        def answer(connection, message):
            if message.method == "POST":
                names.append(json.loads(message.body)["request_id"])
                return connection.send(response(200, json.dumps({"id": names[-1]}).encode()))
            has_it = message.target.rpartition("/")[2] in [*names, "health"]
            return connection.send(response(200 if has_it else 404, b"{}"))

        return answer

    workers = [harness.worker(naming()) for _ in range(3)]
    client = harness.client(harness.router(*workers, policy="round_robin"))
    ask(client, "POST", PATH, {"input": "x", "request_id": "my-own"})
    for _ in range(3):
        ask(client, "GET", f"{PATH}/my-own")


@pytest.mark.parametrize(
    ("more", "repeated"),
    [
        ({"store": False}, True),
        ({}, False),
        ({"store": False, "previous_response_id": "resp_0"}, False),
        ({"store": False, "conversation": "conv_0"}, False),
    ],
    ids=["not-stored", "stored", "continued", "in-a-conversation"],
)
def test_a_response_that_nobody_keeps_may_be_made_by_another_worker(harness, more, repeated):
    """Codex stores none: for a lost worker it got a 502 where a chat is repeated."""
    keeper, lost = engine(harness), harness.worker(lambda connection, message: lose(connection, message))
    lost_requests = []

    def lose(connection, message):
        if message.method == "GET":  # health, and the search for a stored response
            connection.send(response(200, b"{}"))
        else:
            lost_requests.append(message)
            connection.reset()

    router = harness.router(lost, keeper, policy="round_robin", disable_retries=False)
    body = json.dumps({"input": "x"} | more).encode()
    statuses = [harness.client(router).ask("POST", PATH, body=body).status for _ in range(4)]
    assert lost_requests
    assert (set(statuses) == {200}) is repeated
