"""cpp/proxy/client/remote_tokenizer.h: asking workers for token ids, over sockets;
what a request sees when that fails.
"""

import json

import pytest

from tests.fakes.wire import eventually, request, response
from vllm_router.testing import SimulatedWorker

LONG = "Tell me about the weather in Oslo, please. " * 20


def chat(*texts):
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return json.dumps({"model": "m", "messages": messages}).encode()


def fields(body):
    return {"method": "POST", "target": "/v1/chat/completions", "body": body}


def tokens(ids):
    return response(200, json.dumps({"count": len(ids), "tokens": ids}).encode())


class Tokens:
    """A worker's answers: /tokenize by `answer`, everything else hello; remembers what it was asked."""

    def __init__(self, answer=lambda _connection, _message: tokens(list(range(200)))):
        self.answer = answer
        self.asked = []
        self.heads = []

    def __call__(self, connection, message):
        if message.target != "/tokenize" and not message.target.endswith("/render"):
            connection.send(response(200, b"hello"))
            return
        self.asked.append(json.loads(message.body))
        self.heads.append(message)
        answer = self.answer(connection, message)
        if answer is not None:
            connection.send(answer)


def a_router(harness, *workers, timeout_ms=60_000):
    return harness.router(
        *workers,
        policy="vllm_cache_aware",
        routing={"tokenize": "worker"},
        tokenize_timeout_ms=timeout_ms,
    )


def calls(router, counter="tokenize_calls_total"):
    ends = {}
    for line in router.server.metrics_text().splitlines():
        if line.startswith(f"vllm_router_{counter}{{"):
            name, value = line.split(" ")
            ends[name.split('"')[1]] = int(float(value))
    return {end: count for end, count in ends.items() if count}


def metric(router, series):
    (line,) = [
        line
        for line in router.server.metrics_text().splitlines()
        if line.startswith(f"vllm_router_{series} ")
    ]
    return float(line.split(" ")[1])


def test_a_new_text_is_asked_for_and_its_later_turns_are_not(harness):
    tokenizing = Tokens()
    router = a_router(harness, harness.worker(tokenizing))
    client = harness.client(router)
    assert client.ask(**fields(chat(LONG))).body == b"hello"
    assert client.ask(**fields(chat(LONG))).body == b"hello"
    assert client.ask(**fields(chat(LONG, "Rain.", "And tomorrow?"))).body == b"hello"
    assert tokenizing.asked == [{**json.loads(chat(LONG)), "add_generation_prompt": True}]
    assert calls(router) == {"ok": 1}
    # 200 ids are 12 blocks. The third request goes on behind them and so leaves the last one out.
    assert metric(router, "matched_blocks_total") == 12 + 11
    assert metric(router, 'token_cache_lookups_total{known="whole"}') == 2  # once when the answer had come
    assert metric(router, 'token_cache_lookups_total{known="part"}') == 1
    assert metric(router, "token_cache_entries") == 1
    assert metric(router, "token_cache_bytes") >= 800
    assert metric(router, "tokenize_wait_seconds_total") > 0


def test_prompts_of_ids_and_other_routes_are_not_asked_about(harness):
    tokenizing = Tokens()
    router = a_router(harness, harness.worker(tokenizing))
    client = harness.client(router)
    client.ask("POST", "/v1/completions", body=json.dumps({"prompt": list(range(99))}).encode())
    client.ask("POST", "/v1/embeddings", body=json.dumps({"input": LONG}).encode())
    client.ask("GET", "/anything")
    assert tokenizing.asked == []
    client.ask("POST", "/v1/completions", body=json.dumps({"prompt": LONG}).encode())
    assert tokenizing.asked == [{"prompt": LONG}]


def test_the_simulated_worker_is_understood(harness):
    with SimulatedWorker() as worker:
        router = a_router(harness, worker.url)
        client = harness.client(router)
        body = chat(LONG).replace(b'"m"', b'"simulated-model"')
        assert client.ask(**fields(body)).status == 200
        assert calls(router) == {"ok": 1}


@pytest.mark.parametrize(
    ("answer", "end", "asked_again"),
    [
        (response(404, b'{"detail":"Not Found"}'), "unknown", False),
        (response(405, b""), "unknown", False),
        (response(500, b"{}"), "failed", False),
        (response(200, b'{"tokens":"x"}'), "failed", False),
        (b"HTTP/1.1 nonsense\r\n\r\n", "failed", False),
        (response(400, b'{"error":{"message":"no"}}'), "refused", True),
        (response(404, b'{"error":{"message":"The model `m` does not exist."}}'), "refused", True),
        (response(404, b'{"error":{"message":"Not Found","code":404}}'), "unknown", False),
        (response(401, b'{"error":"Unauthorized"}'), "refused", True),
        (response(403, b'{"error":{"message":"This key may not.","type":"permission"}}'), "refused", True),
        (response(403, b'{"error":{"message":"off","type":"PermissionDeniedError"}}'), "unknown", False),
    ],
)
def test_without_ids_a_request_goes_on_with_bytes(harness, answer, end, asked_again):
    tokenizing = Tokens(lambda _connection, _message: answer)
    router = a_router(harness, harness.worker(tokenizing))
    client = harness.client(router)
    assert client.ask(**fields(chat(LONG))).body == b"hello"
    assert calls(router) == {end: 1}
    assert client.ask(**fields(chat(LONG))).body == b"hello"
    # Whoever failed, or does not know the call, rests; whoever refused a request may like the next one.
    assert len(tokenizing.asked) == 1 + asked_again
    assert calls(router) == ({end: 2} if asked_again else {end: 1, "nobody": 1})
    assert metric(router, "matched_blocks_total") > 0


def test_another_worker_is_asked_while_one_rests(harness):
    good, bad = Tokens(), Tokens(lambda _connection, _message: response(404, b""))
    router = a_router(harness, harness.worker(good), harness.worker(bad))
    client = harness.client(router)
    for turn in range(12):
        assert client.ask(**fields(chat(f"{turn}: {LONG}"))).status == 200
    assert len(bad.asked) <= 1
    assert len(good.asked) + len(bad.asked) == 12


def test_a_worker_that_is_too_slow_costs_the_time_limit_once(harness):
    worker = harness.worker(Tokens(lambda _connection, _message: gate.wait()))
    gate = worker.gate()
    router = a_router(harness, worker, timeout_ms=50)
    client = harness.client(router)
    assert client.ask(**fields(chat(LONG))).body == b"hello"
    assert calls(router) == {"timeout": 1}
    assert client.ask(**fields(chat(LONG))).body == b"hello"
    assert calls(router) == {"timeout": 1, "nobody": 1}
    gate.open()


def test_a_worker_is_not_asked_more_than_it_can_answer(harness):
    worker = harness.worker(Tokens(lambda _connection, _message: gate.wait() or tokens([1] * 99)))
    gate = worker.gate()
    router = a_router(harness, worker)
    clients = [harness.client(router) for _ in range(6)]
    for number, client in enumerate(clients):
        client.send(request(**fields(chat(f"{number}: {LONG}"))))
    eventually(lambda: calls(router) == {"nobody": 2}, "two requests that nobody was asked for")
    gate.open()
    for client in clients:
        assert client.read_response().body == b"hello"
    assert calls(router) == {"nobody": 2, "ok": 4}


def test_a_client_that_leaves_ends_the_question(harness):
    worker = harness.worker(Tokens(lambda connection, _message: connection.ending() and None))
    router = a_router(harness, worker)
    client = router.connect()
    client.send(request(**fields(chat(LONG))))
    worker.wait_for_requests(1)
    client.close()
    assert worker.connections[0].wait_ended() in ("eof", "reset")
    eventually(lambda: calls(router) == {"gone": 1}, "the question that ended")
    assert router.loads() == [0]


def test_a_worker_that_answers_byte_by_byte_is_cut_off(harness):
    def dribble(connection, _message):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        gate.wait()

    worker = harness.worker(Tokens(dribble))
    gate = worker.gate()
    router = a_router(harness, worker, timeout_ms=50)
    assert harness.client(router).ask(**fields(chat(LONG))).body == b"hello"
    assert calls(router) == {"timeout": 1}
    gate.open()


# ---- requests that an engine renders

HELLO = {"role": "user", "content": LONG}
RENDERED = [
    ("/v1/messages", {"model": "m", "max_tokens": 5, "system": "Be kind.", "messages": [HELLO]}),
    ("/v1/responses", {"model": "m", "instructions": "Be kind.", "input": [HELLO], "stream": True}),
]


def rendered(ids):
    return response(200, json.dumps({"request_id": "1", "token_ids": ids, "features": None}).encode())


@pytest.mark.parametrize(("path", "body"), RENDERED, ids=["messages", "responses"])
def test_a_worker_renders_messages_and_responses(harness, path, body):
    tokenizing = Tokens(lambda _connection, _message: rendered(list(range(200))))
    router = a_router(harness, harness.worker(tokenizing))
    client = harness.client(router)
    for _ in range(2):
        assert client.ask("POST", f"{path}?beta=true", body=json.dumps(body).encode()).body == b"hello"
    assert [head.target for head in tokenizing.heads] == [f"{path}/render"]
    assert tokenizing.asked == [body]
    assert calls(router) == {"ok": 1}
    assert metric(router, "matched_blocks_total") == 12


def test_a_worker_that_renders_nothing_tokenizes_still(harness):
    def answer(_connection, message):
        return tokens(list(range(200))) if message.target == "/tokenize" else response(404, b"")

    tokenizing = Tokens(answer)
    router = a_router(harness, harness.worker(tokenizing))
    client = harness.client(router)
    for path, body in RENDERED + RENDERED:
        assert client.ask("POST", path, body=json.dumps(body).encode()).body == b"hello"
    assert calls(router) == {"unknown": 2, "nobody": 2}
    assert client.ask(**fields(chat(LONG))).body == b"hello"
    assert calls(router) == {"unknown": 2, "nobody": 2, "ok": 1}


def test_a_client_of_a_worker_with_keys_gets_its_prompt_rendered(harness):
    """The router has no key of that worker, and the clients have: one with a wrong key hurts nobody else."""

    def answer(_connection, message):
        good = message.get("authorization") == "Bearer right"
        return rendered(list(range(200))) if good else response(401, b'{"error":"Unauthorized"}')

    tokenizing = Tokens(answer)
    router = a_router(harness, harness.worker(tokenizing))
    client = harness.client(router)
    path, body = RENDERED[0]
    for number, key in enumerate(("wrong", "right")):
        sent = json.dumps(body | {"system": f"{number}"}).encode()
        client.ask("POST", path, ("Authorization", f"Bearer {key}"), body=sent)
    assert calls(router) == {"refused": 1, "ok": 1}


# ---- where a model's template prints tools

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def of_agent(system, model="m"):
    messages = [{"role": "system", "content": f"{LONG}{system}"}, {"role": "user", "content": "Hello."}]
    return json.dumps({"model": model, "messages": messages, "tools": [TOOL | {"about": LONG}]}).encode()


class Template(Tokens):
    """Tokenizes a chat by a template that prints the tools first, or behind the system prompt."""

    def __init__(self, tools_first):
        super().__init__(self.tokenize)
        self.tools_first = tools_first

    def tokenize(self, _connection, message):
        chat = json.loads(message.body)
        system, *others = [one["content"] for one in chat["messages"]]
        tools = json.dumps(chat["tools"])
        parts = [tools, system, *others] if self.tools_first else [system, tools, *others]
        return tokens(list("\n".join(parts).encode()))


@pytest.mark.parametrize(("policy", "unit"), [("auto", 64), ("cache_aware", 1)])
@pytest.mark.parametrize("tools_first", [True, False], ids=["first", "after"])
def test_the_first_request_of_a_model_learns_the_order_of_its_tools(harness, policy, unit, tools_first):
    template = Template(tools_first)
    router = harness.router(
        harness.worker(template), policy=policy, decision_headers=True, tokenize_timeout_ms=60_000
    )
    client = harness.client(router)
    client.ask(**fields(of_agent("in /home/ann")))
    assert len(template.asked) == 2
    status = client.ask(**fields(of_agent("in /home/ben"))).get("x-vllm-router-cache-status")
    assert len(template.asked) == 2
    # Both share the system prompt up to the directory; where tools come first, all of these as well.
    shared = int(status.partition("/")[0]) * unit
    assert (shared > 1.5 * len(LONG)) is tools_first
    client.ask(**fields(of_agent("in /home/ann", "other")))
    assert len(template.asked) == 4


def test_a_worker_that_cannot_tell_the_order_is_not_asked_each_time(harness):
    silent = Tokens(lambda _connection, _message: response(404, b""))
    router = harness.router(harness.worker(silent), policy="auto")
    client = harness.client(router)
    for number in range(3):
        assert client.ask(**fields(of_agent(f"in /home/{number}", f"model-{number}"))).body == b"hello"
    assert len(silent.asked) == 1


def test_a_model_that_no_worker_knows_does_not_keep_others_from_their_order(harness):
    template = Template(tools_first=True)

    def answer(connection, message):
        if b"nonsense" in message.body:
            return response(404, b'{"error":{"message":"The model `nonsense` does not exist."}}')
        return template.tokenize(connection, message)

    tokenizing = Tokens(answer)
    router = harness.router(harness.worker(tokenizing), policy="auto", tokenize_timeout_ms=60_000)
    client = harness.client(router)
    for model in ("nonsense", "nonsense", "m"):
        client.ask(**fields(of_agent("in /home/ann", model)))
    assert [chat["model"] for chat in tokenizing.asked] == ["nonsense", "m", "m"]


def test_a_client_that_leaves_does_not_keep_others_from_the_order(harness):
    worker = harness.worker(Tokens(lambda connection, _message: connection.ending() and None))
    router = harness.router(worker, policy="auto", tokenize_timeout_ms=60_000)
    for number in range(2):
        client = router.connect()
        client.send(request(**fields(of_agent(f"in /home/{number}"))))
        worker.wait_for_requests(number + 1)
        client.close()
        assert worker.connections[number].wait_ended() in ("eof", "reset")


def test_a_worker_that_is_too_slow_to_tell_the_order_costs_the_time_limit_once(harness):
    worker = harness.worker(Tokens(lambda _connection, _message: gate.wait()))
    gate = worker.gate()
    router = harness.router(worker, policy="auto", tokenize_timeout_ms=50)
    client = harness.client(router)
    for number in range(2):
        assert client.ask(**fields(of_agent(f"in /home/{number}"))).body == b"hello"
    gate.open()


def test_without_a_system_prompt_or_with_a_fixed_order_nothing_is_asked(harness):
    template = Template(tools_first=True)
    for more in ({}, {"routing": {"routing_text_tools": "first"}}):
        router = harness.router(harness.worker(template), policy="auto", **more)
        sent = json.loads(of_agent(""))
        sent["messages"] = sent["messages"][0 if more else 1 :]
        harness.client(router).ask(**fields(json.dumps(sent).encode()))
    assert template.asked == []


# ---- in the background of a later turn's response

MORE = "And what will it be like there tomorrow, in the afternoon? " * 12


def background(router):
    return calls(router, "background_tokenize_calls_total")


@pytest.mark.parametrize("policy", ["vllm_cache_aware", "auto"])
def test_what_is_expected_of_each_turn_is_what_the_worker_reports(harness, policy):
    """Row 35: only the first turn's token ids were ever asked for, so expectations stayed with its blocks."""
    block = 128
    with SimulatedWorker(block_tokens=block) as worker:
        routing = {"tokenize": "worker", "block_size": block}
        router = harness.router(worker.url, policy=policy, routing=routing, tokenize_timeout_ms=60_000)
        client = harness.client(router)
        texts, sizes, expected, reported = [LONG], [], [], []
        for turn in range(6):
            body = json.loads(chat(*texts)) | {"model": "simulated-model", "max_tokens": 1}
            before = metric(router, "matched_blocks_total")
            answer = json.loads(client.ask(**fields(json.dumps(body).encode())).body)
            expected.append((metric(router, "matched_blocks_total") - before) * block)
            reported.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
            sizes.append(answer["usage"]["prompt_tokens"])
            texts += [answer["choices"][0]["message"]["content"], f"{turn}: {MORE * 2}"]
            eventually(lambda turn=turn: background(router) == ({"ok": turn} if turn else {}), "its ids")
        assert calls(router) == {"ok": 1}
        # The last 16 ids of a turn are left out, which may cost a block (the sixth turn here).
        used = [0, *[(size - 16) // block * block for size in sizes[:-1]]]
        assert expected == used
        assert expected[:5] == reported[:5]
        assert reported[-1] > reported[1] > 0


def ask_turns(client, turns):
    """A first turn, and later ones of as many conversations that begin with it."""
    client.ask(**fields(chat(LONG)))
    for turn in range(turns):
        assert client.ask(**fields(chat(LONG, "Rain.", f"{turn}: {MORE}"))).body == b"hello"


def only_the_first(answer):
    """Answers `answer` to all but the first question for ids."""
    questions = []

    def reply(connection, message):
        questions.append(message)
        if len(questions) == 1:
            return tokens(list(range(200)))
        return answer(connection, message) if callable(answer) else answer

    return Tokens(reply)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (response(500, b"{}"), "failed"),
        (response(200, b'{"tokens":[1,2],"count":3}'), "failed"),
        (b"HTTP/1.1 nonsense\r\n\r\n", "failed"),
        (response(200, b" " * (9 << 20)), "failed"),
        (response(404, b'{"detail":"Not Found"}'), "unknown"),
    ],
)
def test_a_failure_in_the_background_is_nobody_elses(harness, answer, result):
    tokenizing = only_the_first(answer)
    router = a_router(harness, harness.worker(tokenizing))
    client = harness.client(router)
    ask_turns(client, 1)
    eventually(lambda: background(router) == {result: 1}, "the failure")
    ask_turns(client, 3)
    assert background(router) == {result: 1, "dropped": 3}  # it rests
    assert len(tokenizing.asked) == 2
    # Whose first turn has to be asked for finds the worker ready, unless it has no such call.
    client.ask(**fields(chat(f"Other: {LONG}")))
    assert len(tokenizing.asked) == (2 if result == "unknown" else 3)
    eventually(lambda: router.loads() == [0], "the end of all requests")


def test_many_later_turns_are_not_as_many_questions(harness):
    worker = harness.worker(only_the_first(lambda _connection, _message: gate.wait()))
    gate = worker.gate()
    router = a_router(harness, worker)
    client = harness.client(router)
    ask_turns(client, 12)  # none of them waits
    assert background(router) == {"dropped": 10}
    assert calls(router) == {"ok": 1}
    gate.open()


def test_a_background_question_that_hangs_is_given_up_without_a_rest_for_others(harness):
    tokenizing = only_the_first(
        lambda _connection, _message: tokens([1] * 99) if len(tokenizing.asked) > 2 else None
    )
    worker = harness.worker(tokenizing)
    router = a_router(harness, worker, timeout_ms=50)
    client = harness.client(router)
    ask_turns(client, 1)
    eventually(lambda: background(router) == {"timeout": 1}, "the end of its time")
    client.ask(**fields(chat(f"Other: {LONG}")))
    assert "nobody" not in calls(router)


def test_a_short_rest_of_bytes_is_not_worth_a_question(harness):
    tokenizing = Tokens()
    router = a_router(harness, harness.worker(tokenizing))
    client = harness.client(router)
    client.ask(**fields(chat(LONG)))
    client.ask(**fields(chat(LONG, "Rain.", "And tomorrow?")))
    assert background(router) == {}
    assert len(tokenizing.asked) == 1
