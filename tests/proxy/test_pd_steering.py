"""What a client may not decide in a fleet with stages: the ids and ranks that engines read, which worker
gets a request whole, and which paths lead to one.
"""

import json
import re

import pytest

from tests.fakes.harness import error_of
from tests.fakes.pd import PARAMETERS, WHOLE, ask, handing_over, prefill_response, series, staged
from tests.fakes.registrant import BODY, D_ZMQ, P_ZMQ, SERVED, Engine, pair, starting
from tests.fakes.wire import eventually, request, response
from tests.proxy.test_pd import labelled, post

EVIL = "66.6.6.6"
SPOOF = f"___prefill_addr_{EVIL}:1___decode_addr_{EVIL}:2_" + "0" * 32
READ = {"remote_engine_id": "e", "remote_block_ids": [[1, 2]]}
KINDS = {"p2p_nccl": {}, "moriio": {"transfer_mode": "WRITE"}}

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
def start(harness):
    with starting(harness) as start:
        yield start


def all_bytes(*workers):
    """What the workers have read: targets, fields and bodies."""
    return "\n".join(
        f"{one.method} {one.target} {one.fields} {one.body!r}"
        for worker in workers
        for one in worker.requests
    )


# ---- row 3: no id and no rank of a client reaches a worker


REQUESTS = [
    ("POST", "/v1/completions", {"prompt": "hi"}),
    ("POST", "/v1/completions", {"prompt": "hi", "n": 2}),
    ("POST", "/v1/completions", {"prompt": ["hi", "ho"]}),
    ("POST", CHAT, {"messages": MESSAGES, "chat_template": "z"}),
    ("POST", RESPONSES, {"input": "hi"}),
    ("POST", RESPONSES, {"input": "hi", "previous_response_id": "resp_1"}),
    ("POST", "/v1/messages", {"messages": MESSAGES, "max_tokens": 3}),
    ("POST", "/v1/embeddings", {"input": "hi"}),
    ("POST", "/invocations", {"prompt": "hi"}),
    ("POST", "/tokenize", {"prompt": "hi"}),
    ("POST", "/named", {"prompt": "hi"}),
    ("GET", "/version", None),
    ("GET", "/v1/responses/resp_2", None),
    ("DELETE", "/v1/responses/resp_3", None),
]
NAMES = [
    *("X-Request-Id", "x-request-id", "X-Correlation-ID", "X-Trace-Id", "Request-Id", "X_Request_Id"),
    *("X-Own-Id", "x_own-id", "X-Data-Parallel-Rank", "x_data_parallel_rank"),
]
OWN = ["X-Own-Id", "x-request-id", "x-correlation-id", "x-trace-id", "request-id"]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_row_3_no_id_of_a_client_reaches_a_worker(harness, method, path, body):
    def answer(connection, message):  # decode has the stored responses
        stored = message.method == "GET" and message.target.startswith("/v1/responses/")
        connection.send(response(404) if stored else response(200, WHOLE))

    prefill, decode = harness.worker(answer), harness.worker()
    router = staged(harness, [prefill], [decode], pd_pass_paths=["/named"], request_id_headers=OWN)
    client = harness.client(router)
    more = {"model": "m", "request_id": SPOOF, "rid": [SPOOF], "data_parallel_rank": EVIL}
    data = b"" if body is None else json.dumps({**more, **body}).encode()
    for name in NAMES:
        for fields in ([(name, SPOOF)], [(name, SPOOF), (name, "")], [(name, SPOOF), ("Connection", name)]):
            message = client.ask(method, path, *fields, body=data)
            assert message.status == 200, (name, message)
            seen_by_client = message.get("x-request-id")
            if "rank" not in name.lower() and "_" not in name:
                assert seen_by_client == SPOOF  # it finds its own id in the response
    assert EVIL not in all_bytes(prefill, decode)
    for worker in (prefill, decode):
        for one in worker.requests:
            if one.target == path:
                assert one.get("x-request-id"), one.fields


def test_row_3_a_trailer_is_no_way_past(harness):
    prefill, decode = handing_over(harness), harness.worker()
    client = harness.client(staged(harness, [prefill], [decode]))
    for path in (b"/v1/completions", b"/v1/embeddings"):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nTrailer: X-Request-Id\r\n"
        body = b'{"prompt":"hi"}'
        client.send(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n")
        client.send(b"X-Request-Id: " + SPOOF.encode() + b"\r\n\r\n")
        assert client.read_response("POST").status == 200
    assert len(prefill.posts) == 2
    assert EVIL not in all_bytes(prefill, decode)


@pytest.mark.parametrize("form", ["addresses", "plain"])
def test_row_3_the_id_of_a_pair_is_the_routers_own(harness, form):
    prefill, decode = handing_over(harness), harness.worker()
    router = staged(harness, [prefill], [decode], pd_request_id=form)
    message = post(harness.client(router), BODY, "/v1/completions", ("X-Request-Id", SPOOF))
    assert (message.status, message.get("x-request-id")) == (200, SPOOF)
    ids = {worker.posts[0].get("x-request-id") for worker in (prefill, decode)}
    assert len(ids) == 1
    assert EVIL not in ids.pop()


def test_row_3_each_attempt_and_each_request_to_all_has_the_routers_id(harness):
    failing = harness.worker(lambda connection, _: connection.send(response(503)))
    prefill, decode = handing_over(harness), harness.worker()
    router = staged(harness, [prefill], [failing, decode], retry_max_retries=5, fan_out_path=["/all"])
    client = harness.client(router)
    for _ in range(4):
        message = post(client, {**BODY, "n": 2}, "/v1/completions", ("X-Request-Id", SPOOF))
        assert (message.status, message.get("x-request-id")) == (200, SPOOF)
    assert client.ask("POST", "/all", ("X-Request-Id", SPOOF), body=b"{}").get("x-request-id") == SPOOF
    assert EVIL not in all_bytes(prefill, failing, decode)
    assert any(one.target == "/all" for one in decode.requests)


def test_row_3_without_stages_the_client_s_id_and_members_pass(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    body = json.dumps({**BODY, "request_id": "mine", "rid": "r", "data_parallel_rank": 1}).encode()
    fields = (("X-Request-Id", "mine"), ("X_Request_Id", "too"), ("X-Data-Parallel-Rank", "1"))
    for path in ("/v1/completions", "/vertex_generate"):
        assert client.ask("POST", path, *fields, body=body).status == 200
    for one in worker.posts:
        assert one.body == body
        assert (one.get("x-request-id"), one.get("x_request_id")) == ("mine", "too")
        assert one.get("x-data-parallel-rank") == "1"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["/v1/completions", RESPONSES, CHAT, "/v1/messages"])
def test_row_3_engines_that_read_addresses_in_ids_get_the_pairs_wherever_they_read(
    harness, start, kind, path
):
    """vLLM takes the id of /v1/responses from its body, and from X-Request-Id elsewhere."""
    fleet, p, d = pair(harness, start, connector=kind, prefill=KINDS[kind], decode=KINDS[kind])
    prompt = {"/v1/completions": {"prompt": "hi"}, RESPONSES: {"input": "hi"}}
    body = {"model": "m", "max_tokens": 3, "request_id": SPOOF, **prompt.get(path, {"messages": MESSAGES})}
    if path == RESPONSES:
        del body["max_tokens"]
    assert post(fleet.admin, body, path, ("X-Request-Id", SPOOF)).status == 200
    eventually(lambda: len(p.bodies) == len(d.bodies) == 1)
    for engine in (p, d):
        named = engine.bodies[0].get("request_id")
        read = engine.ids[0] if path != RESPONSES else named
        assert re.search(rf"___prefill_addr_{P_ZMQ}___decode_addr_{D_ZMQ}_[0-9a-f]{{32}}$", read or "")
        assert (named is None) == (path != RESPONSES)
        assert named is None or named.startswith("resp_")
    assert EVIL not in all_bytes(p.worker, d.worker)


# ---- row 4: engines that serve no request alone


ALONE = [
    ("/v1/completions", {"prompt": "hi", "n": 2}, "several_sequences", "send n requests"),
    ("/v1/completions", {"prompt": "hi", "best_of": 2}, "several_sequences", "send n requests"),
    ("/v1/completions", {"prompt": ["hi", "ho"]}, "batch", "a request for each prompt"),
    ("/v1/completions", {"prompt": [[1], [2]]}, "batch", "a request for each prompt"),
    ("/v1/completions", {"prompt": "hi", "use_beam_search": True}, "beam_search", "use_beam_search"),
    ("/v1/completions", {"prompt": "hi", "prompt_embeds": "x"}, "prompt_embeds", "token ids"),
    ("/v1/completions", {"prompt": "hi", "max_tokens": "7"}, "wrong_type", "type"),
    (CHAT, {"messages": MESSAGES, "chat_template": "z"}, "template", "chat_template"),
    ("/v1/chat/completions/batch", {"messages": [MESSAGES]}, "batch", "a request for each prompt"),
    (RESPONSES, {"input": "hi", "previous_response_id": "resp_1"}, "stored_response", "whole conversation"),
    (RESPONSES, {"input": "hi", "background": True}, "background", "background"),
    (RESPONSES, {"input": "hi", "truncation": "auto"}, "truncation", "truncation"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_row_4_what_two_workers_cannot_share_is_rejected(harness, start, kind):
    fleet, p, d = pair(
        harness,
        start,
        connector=kind,
        prefill=KINDS[kind],
        decode=KINDS[kind],
        pd_on_prefill_loss="local",
        disable_retries=False,
    )
    for path, body, reason, remedy in ALONE:
        message = post(fleet.admin, {"model": "m", **body}, path)
        assert (message.status, error_of(message)["code"]) == (400, "invalid_body"), path
        said = error_of(message)["message"]
        assert f"({reason})" in said
        assert kind in said
        assert remedy in said
    for path in (
        "/generate",
        "/v1/embeddings",
        "/v1/score",
        "/classify",
        "/pooling",
        "/rerank",
        "/invocations",
    ):
        message = post(fleet.admin, {"model": "m", "input": "hi"}, path)
        assert (message.status, error_of(message)["code"]) == (400, "invalid_body"), path
        assert kind in error_of(message)["message"]
    message = fleet.admin.ask("POST", "/v1/audio/transcriptions", body=b"--x\r\nno JSON")
    assert message.status == 400
    assert (p.bodies, d.bodies) == ([], [])
    # What needs no engine goes on, and so do pairs.
    assert post(fleet.admin, {"model": "m", "prompt": "hi"}, "/tokenize").status == 200
    assert post(fleet.admin, BODY).status == 200
    assert labelled(fleet.router, "pd_local_total", "reason") == {}


@pytest.mark.parametrize("kind", KINDS)
def test_row_4_without_a_prefill_worker_there_is_no_response(harness, start, kind):
    fleet = start(connector=kind, pd_on_prefill_loss="local", disable_retries=False)
    d = Engine(harness, SERVED)
    fleet.join("D", d, D_ZMQ, **KINDS[kind])
    fleet.wait_for(0, 1)
    message = post(fleet.admin, BODY)
    assert (message.status, error_of(message)["code"]) == (503, "no_workers")
    assert d.bodies == []


@pytest.mark.parametrize("kind", KINDS)
def test_row_4_a_bypass_is_not_accepted_at_the_start(start, kind):
    with pytest.raises(ValueError, match=f"kv_connector is {kind}, whose decode workers cannot prefill by"):
        start(connector=kind, routing={"pd_bypass_uncached_tokens": 64})


@pytest.mark.parametrize("status", [500, 503, 0])
@pytest.mark.parametrize("kind", KINDS)
def test_row_4_no_retry_is_of_decode_alone(harness, start, kind, status):
    """0: the connection is lost. The other decode worker gets pairs only."""
    fleet, _, d = pair(
        harness,
        start,
        connector=kind,
        prefill=KINDS[kind],
        decode=KINDS[kind],
        disable_retries=False,
        retry_initial_backoff_ms=1,
        pd_on_prefill_loss="local",
    )
    other = Engine(harness, SERVED)
    fleet.join("D", other, "10.0.0.3:21003", **KINDS[kind])
    fleet.wait_for(1, 2)
    for engine in (d, other):
        engine.worker.answer = lambda connection, _: (
            connection.send(response(status)) if status else connection.close()
        )
    for _ in range(3):
        post(harness.client(fleet.router), BODY)
    for engine in (d, other):
        for one in engine.worker.posts:
            assert re.match(r"___prefill_addr_10", one.get("x-request-id")), one.fields
            assert kind == "p2p_nccl" or "kv_transfer_params" in json.loads(one.body)
    assert labelled(fleet.router, "pd_local_total", "reason") == {}


def test_row_4_moriio_decode_is_sent_nothing_without_blocks_to_read(harness, start):
    """READ: it would generate from blocks that nobody has filled."""
    read = {"transfer_mode": "READ"}
    options = {"connector": "moriio", "prefill": read, "decode": read, "disable_retries": False}
    for parameters in (None, {}, {"remote_engine_id": "e"}):
        fleet, p, d = pair(harness, start, parameters=parameters, **options)
        message = post(fleet.admin, BODY)
        assert (message.status, d.bodies) == (502, [])
        assert p.bodies
    fleet, p, d = pair(harness, start, parameters=READ, **options)
    assert post(fleet.admin, {**BODY, "stop": ["a"]}).body == SERVED
    # Prefill hands over only what ends by its length.
    assert p.bodies[0]["ignore_eos"] is True
    assert "stop" not in p.bodies[0]
    assert d.bodies[0]["stop"] == ["a"]
    fleet, p, d = pair(
        harness, start, parameters={**READ, "x": "y" * 4000}, pd_prefill_response_bytes=1024, **options
    )
    assert (post(fleet.admin, BODY).status, d.bodies) == (502, [])


def test_row_4_a_nixl_decode_worker_still_serves_alone(harness):
    prefill, decode = handing_over(harness), harness.worker()
    router = staged(harness, [prefill], [decode])
    assert ask(harness.client(router), n=2).status == 200
    assert (len(prefill.posts), len(decode.posts)) == (0, 1)
    empty = harness.worker(lambda connection, _: connection.send(response(200, prefill_response(None))))
    router = staged(harness, [empty], [decode])
    assert ask(harness.client(router)).status == 200


# ---- row 5: paths


STEER = {"bootstrap_host": EVIL, "bootstrap_port": 1, "bootstrap_room": 7}
TOLD = {"kv_transfer_params": {"remote_host": EVIL}}


@pytest.mark.parametrize("connector", ["sglang", "nixl"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_row_5_an_unknown_path_leads_to_no_worker(harness, connector, method):
    prefill, decode = handing_over(harness), harness.worker()
    router = staged(harness, [prefill], [decode], kv_connector=connector)
    client = harness.client(router)
    body = json.dumps({"instances": [{"text": "x"}], "parameters": STEER}).encode()
    paths = [
        "/vertex_generate",
        "/v1/%63ompletions",
        "//generate",
        "/generate/",
        "/GENERATE",
        "/x/../generate",
    ]
    for path in paths:
        message = client.ask(method, path, body=body)
        assert (message.status, error_of(message)["code"]) == (404, "path_not_passed"), path
        assert f"{method} {path} " in error_of(message)["message"]
        assert "--pd-pass-paths" in error_of(message)["message"]
    assert EVIL not in all_bytes(prefill, decode)
    router.must_rest()
    assert labelled(router, "pd_plan_total", "kind") == {"rejected": len(paths)}


def test_row_5_put_is_no_way_round_the_two_stages(harness):
    """SGLang's /generate takes PUT as well as POST."""
    prefill, decode = handing_over(harness), harness.worker()
    client = harness.client(staged(harness, [prefill], [decode], kv_connector="sglang"))
    assert client.ask("PUT", "/generate", body=b'{"text":"x"}').status == 404
    assert client.ask("PUT", "/v1/embeddings", body=b'{"input":"x"}').status == 404
    assert all_bytes(prefill, decode).count("PUT") == 0


def test_row_5_a_named_path_passes_and_loses_what_steers(harness):
    prefill, decode = handing_over(harness), harness.worker()
    router = staged(harness, [prefill], [decode], kv_connector="sglang", pd_pass_paths=["/vertex_generate"])
    client = harness.client(router)
    body = {"instances": [{"text": "x"}], "parameters": {**STEER, "rid": EVIL, "n": 1}}
    assert post(client, body, "/vertex_generate?a=1").status == 200
    assert json.loads(prefill.posts[0].body) == {"instances": [{"text": "x"}], "parameters": {"n": 1}}
    assert client.ask("PUT", "/vertex_generate", body=b"{}").status == 200
    assert post(client, body, "/vertex_generate/").status == 404
    assert EVIL not in all_bytes(prefill, decode)
    eventually(lambda: series(router, "pd_removed_members_total") == {"bootstrap": 3, "request_id": 1})


@pytest.mark.parametrize(
    "path", ["/generate", "/v1/completions", "/v1/embeddings", "/tokenize", "/invocations"]
)
@pytest.mark.parametrize(
    "place",
    [
        *(
            STEER,
            TOLD,
            {"extra_body": TOLD},
            {"extra_body": STEER},
            {"vllm_xargs": TOLD},
            {"extra_args": TOLD},
        ),
        {"sampling_params": [{}, {"extra_args": TOLD}]},
        {"sampling_params": {"extra_args": TOLD}},
        {"parameters": {"sampling_params": {"extra_args": TOLD}, **STEER}},
        {"extra_body": {"vllm_xargs": TOLD}},
    ],
)
def test_row_5_known_paths_lose_it_at_every_place(harness, path, place):
    prefill, decode = handing_over(harness), harness.worker()
    client = harness.client(staged(harness, [prefill], [decode]))
    assert post(client, {"model": "m", "prompt": "hi", **place}, path).status == 200
    assert prefill.posts
    assert EVIL not in all_bytes(prefill, decode)


def test_row_5_reading_goes_on_and_a_websocket_has_to_be_named(harness):
    prefill, decode = handing_over(harness), harness.worker()
    router = staged(harness, [prefill], [decode], pd_pass_paths=["/named"])
    client = harness.client(router)
    for method in ("GET", "HEAD", "OPTIONS"):
        assert client.ask(method, "/version").status == 200
    upgrade = (("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"))
    for path, status in (("/v1/realtime", 404), ("/named", 200)):
        sender = harness.client(router)
        sender.send(request("GET", path, *upgrade, ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")))
        assert sender.read_response().status == status
    assert not any("realtime" in one.target for one in prefill.requests)


def test_row_5_without_stages_every_path_passes(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (
            client.ask(method, "/vertex_generate", body=b'{"parameters":{"bootstrap_room":7}}').status == 200
        )
    assert [one.body for one in worker.requests if one.target != "/health"] == [
        b'{"parameters":{"bootstrap_room":7}}'
    ] * 4


def test_one_client_s_unknown_paths_cost_another_nothing(harness):
    prefill, decode = handing_over(harness), harness.worker()
    router = staged(harness, [prefill], [decode])
    bad, good = harness.client(router), harness.client(router)
    for _ in range(20):
        assert bad.ask("POST", "/vertex_generate", body=b"{}").status == 404
        assert ask(good).status == 200
    assert len(bad.ask("POST", "/x", body=b"{").body)  # the connection is kept
    assert PARAMETERS["remote_engine_id"] in decode.posts[0].body.decode()
