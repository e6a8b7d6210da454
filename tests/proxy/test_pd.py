"""One request, two workers: disaggregation/pd_exchange.h before simulated stages, and fakes that fail.

"Fact n" is a row of what was seen on vLLM 0.32.0 with NIXL on CPUs; a simulated worker does the same.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fakes.harness import Client, Harness, RunningRouter, error_of
from tests.fakes.pd import prefill_response
from tests.fakes.wire import Message, eventually, request, response
from vllm_router.settings.names import FLAGS
from vllm_router.testing import SimulatedWorker

KIND = FLAGS["kv_connector"].kind
PROMPT = "the permission users. offer, developers license " * 20
OTHER = "called clearly of personal the covered permission " * 20
MODEL = "simulated-model"
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 20}
P_BASE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
WHOLE = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[1, 2]],
    "remote_engine_id": "of-the-client",
    "remote_request_id": "cmpl-x-0-12345678",
    "remote_host": "127.0.0.1",
    "remote_port": 5600,
    "tp_size": 1,
}


@pytest.fixture
def simulated(harness: Harness) -> Iterator[Callable[..., SimulatedWorker]]:
    with contextlib.ExitStack() as stack:

        def start(stage: str | None = None, **options: Any) -> SimulatedWorker:
            more = {} if stage is None else {"stage": stage}
            with harness.keeping_descriptors():  # which it has until it is collected
                return stack.enter_context(SimulatedWorker(engine="instant", **more, **options))

        yield start


@pytest.fixture
def prefill(simulated: Callable[..., SimulatedWorker]) -> SimulatedWorker:
    return simulated("prefill", cache_blocks=64)


@pytest.fixture
def decode(simulated: Callable[..., SimulatedWorker]) -> SimulatedWorker:
    return simulated("decode")


def pair(harness: Harness, prefill: Any, decode: Any, **options: Any) -> RunningRouter:
    """`prefill`, `decode`: a worker, or a list of them."""

    def urls(workers: Any) -> list[str]:
        return [worker.url for worker in (workers if isinstance(workers, list) else [workers])]

    return harness.router(
        routing={"prefill_urls": urls(prefill), "decode_urls": urls(decode)}, **{**ON, **options}
    )


def completion(prompt: Any = PROMPT, tokens: int = 8, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "max_tokens": tokens, **more}


def post(client: Client, body: Any, path: str = COMPLETIONS, *fields: tuple[str, str]) -> Message:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.ask("POST", path, ("Content-Type", "application/json"), *fields, body=data)


def text(message: Message) -> str:
    assert message.status == 200, message.body
    return str(json.loads(message.body)["choices"][0]["text"])


def texts_of(body: bytes) -> str:
    """Of a response or a stream with one choice."""
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")] or [body]
    return "".join(str(choice["text"]) for event in events for choice in json.loads(event)["choices"])


def counts(worker: SimulatedWorker) -> dict[str, int]:
    """The counters that are not zero."""
    return {name: count for name, count in vars(worker.kv_counters()).items() if count}


def must_hold_nothing(*workers: SimulatedWorker) -> None:
    for worker in workers:
        eventually(lambda worker=worker: worker.kv_counters().held == 0, "blocks that are held")
        assert worker.kv_counters().stranded == 0


def alone(simulated: Callable[..., SimulatedWorker], harness: Harness) -> Client:
    """A client of a single worker that is no half of a pair."""
    return harness.client(harness.router(simulated()))


def claims(router: RunningRouter) -> dict[str, int]:
    return labelled(router, "pd_claims_total", "end")


def labelled(router: RunningRouter, name: str, label: str) -> dict[str, int]:
    found = re.findall(
        rf'^vllm_router_{name}\{{{label}="([^"]+)"\}} (\S+)$', router.server.metrics_text(), re.MULTILINE
    )
    return {value: int(float(count)) for value, count in found if float(count)}


# ---- what a pair answers, and what each of it gets


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": PROMPT, "max_tokens": 8}),
        (CHAT, {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8}),
        ("/v1/responses", {"input": PROMPT, "max_output_tokens": 8}),
        ("/v1/messages", {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8}),
    ],
)
def test_a_pair_answers_as_a_single_worker(harness, simulated, prefill, decode, path, body, stream):
    body = {"model": MODEL, "stream": stream, **body}

    def shape(client: Client) -> str:
        message = post(client, body, path, ("X-Request-Id", "mine"))
        assert message.status == 200, message.body
        varying = r'"(id|created|created_at|completed_at|system_fingerprint|item_id)": ?("[^"]*"|\d+(\.\d+)?)'
        without = re.sub(varying, "", message.body.decode())
        return re.sub(r',?"[a-z_]*(tokens|transfer_params)[a-z_]*": ?(\d+|null|\{[^}]*\})', "", without)

    router = pair(harness, prefill, decode)
    assert shape(harness.client(router)) == shape(alone(simulated, harness))
    assert counts(prefill) == {"pulled": 1}
    assert decode.kv_counters().local_prefills == 0
    assert claims(router) == {"redeemed": 1}
    must_hold_nothing(prefill)


def test_each_of_both_gets_its_copy_of_the_body(harness, prefill, decode):
    body = (
        b'{"model" : "simulated-model", "stream":true,"stream_options":{"include_usage":true},'
        b'"temperature":0.0,"seed":12345678901234567890,"max_tokens":7,"unknown":{"a":[1e5,1.0]},"prompt":"h\\u0069"}'
    )
    assert post(harness.client(pair(harness, prefill, decode)), body).status == 200
    (of_prefill,) = prefill.captured()
    (of_decode,) = decode.captured()
    kept = (
        b'"temperature":0.0,"seed":12345678901234567890,',
        b'"unknown":{"a":[1e5,1.0]},"prompt":"h\\u0069"}',
    )
    for one in (of_prefill, of_decode):
        assert all(piece in one.body for piece in kept)
    to_prefill, to_decode = json.loads(of_prefill.body), json.loads(of_decode.body)
    assert to_prefill.pop("kv_transfer_params") == P_BASE
    assert to_prefill == {
        "max_tokens": 1,
        "stream": False,
        "model": MODEL,
        "temperature": 0.0,
        "seed": 12345678901234567890,
        "unknown": {"a": [1e5, 1.0]},
        "prompt": "hi",
    }
    assert to_decode.pop("kv_transfer_params")["remote_block_ids"]
    assert to_decode == json.loads(body)


def test_each_of_both_gets_the_clients_headers(harness, prefill, decode):
    fields = (
        ("Authorization", "Bearer of-the-client"),
        ("X-Session-ID", "s1"),
        ("Accept-Encoding", "gzip"),
        ("X-Data-Parallel-Rank", "7"),
        ("traceparent", "00-1-2-01"),
        ("X-Request-Id", "mine"),
    )
    message = post(harness.client(pair(harness, prefill, decode)), completion(), COMPLETIONS, *fields)
    assert message.get("x-request-id") == "mine"
    heads = [
        {name.lower(): value for name, value in worker.captured()[0].headers} for worker in (prefill, decode)
    ]
    for head, worker in zip(heads, (prefill, decode), strict=True):
        assert head["authorization"] == "Bearer of-the-client"
        assert head["x-session-id"] == "s1"
        assert head["traceparent"] == "00-1-2-01"
        assert head["host"] == f"127.0.0.1:{worker.port}"
        assert int(head["content-length"]) == len(worker.captured()[0].body)
        assert "x-data-parallel-rank" not in head
    assert (heads[0]["accept-encoding"], heads[1]["accept-encoding"]) == ("identity", "gzip")
    assert heads[0]["x-request-id"] == heads[1]["x-request-id"]
    addresses = f"___prefill_addr_127.0.0.1:{prefill.port}___decode_addr_127.0.0.1:{decode.port}_"
    assert re.fullmatch(re.escape(addresses) + "[0-9a-f]{32}", heads[0]["x-request-id"])


def test_parameters_arrive_byte_for_byte(harness):
    raw = json.dumps(WHOLE | {"later": 1.50, "huge": 12345678901234567890}, separators=(", ", " : "))

    def answer(connection, _message):
        connection.send(
            response(200, b'{"choices":[{"finish_reason":"length"}],"kv_transfer_params":%b}' % raw.encode())
        )

    echo = harness.worker()
    message = post(harness.client(pair(harness, harness.worker(answer), echo)), completion())
    assert message.body == b"hello"
    assert echo.requests[0].body.startswith(b'{"kv_transfer_params":' + raw.encode() + b",")


def test_log_probabilities_of_the_prompt_are_prefills(harness):
    of_prefill = prefill_response(WHOLE, prompt_logprobs=[None, 1])
    of_decode = b'{"choices":[],"prompt_logprobs":null,"x": 1.0}'
    prefill = harness.worker(lambda connection, _: connection.send(response(200, of_prefill)))
    decode = harness.worker(lambda connection, _: connection.send(response(200, of_decode, ("X-W", "d"))))
    client = harness.client(pair(harness, prefill, decode))
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "prompt_logprobs": 0}
    for _ in range(2):
        message = post(client, body, CHAT)
        assert (message.status, message.get("x-w")) == (200, "d")
        assert message.body == b'{"choices":[],"prompt_logprobs":[null, 1],"x": 1.0}'
    assert len(decode.connections) == 1
    assert post(client, body | {"stream": True}, CHAT).body == of_decode


@pytest.mark.parametrize("name", KIND.names)
def test_a_server_starts_with_the_connectors_that_flags_offer(harness, name):
    if name in ("moriio", "p2p_nccl"):
        with pytest.raises(
            ValueError, match="whose workers register with the router; set vllm_discovery_addr"
        ):
            pair(harness, [], [], kv_connector=name)
        pair(harness, [], [], kv_connector=name, vllm_discovery_address="127.0.0.1:0")
    else:
        pair(harness, [], [], kv_connector=name)


def test_a_server_starts_with_no_other_connector(harness):
    with pytest.raises(ValueError, match='kv_connector is "flying"; it must be one of') as told:
        pair(harness, [], [], kv_connector="flying")
    assert set(re.findall(r"\w+", str(told.value).partition("one of")[2])) == set(KIND.names)


# ---- what is served by one worker


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (COMPLETIONS, completion([PROMPT, OTHER]), "batch"),
        (COMPLETIONS, completion([[1, 2], [3, 4]]), "batch"),
        (COMPLETIONS, completion(n=2), "several_sequences"),
        (COMPLETIONS, completion(max_tokens="7"), "wrong_type"),
    ],
)
def test_what_is_more_than_one_request_is_served_by_decode_alone(
    harness, prefill, decode, path, body, reason
):
    router = pair(harness, prefill, decode)
    post(harness.client(router), body | {"kv_transfer_params": WHOLE}, path)
    assert prefill.captured() == []
    assert json.loads(decode.captured()[0].body) == body
    router.must_rest()
    assert labelled(router, "pd_local_total", "reason") == {reason: 1}
    assert decode.kv_counters().killed == 0


def test_facts_10_and_35_a_list_of_prompts_ends_no_engine_and_is_right(harness, simulated, prefill, decode):
    body = completion(["hi there", PROMPT])
    client = harness.client(pair(harness, prefill, decode))
    message, single = post(client, body), post(alone(simulated, harness), body)

    def texts(answer: Message) -> list[str]:
        return [choice["text"] for choice in json.loads(answer.body)["choices"]]

    assert (message.status, texts(message)) == (200, texts(single))
    assert text(post(client, completion())) == text(post(alone(simulated, harness), completion()))
    assert decode.kv_counters().killed == 0


@pytest.mark.parametrize("path", ["/v1/embeddings", "/tokenize", "/named"])
def test_what_does_not_generate_is_served_by_one_prefill_worker(harness, path):
    prefill, decode = harness.worker(), harness.worker()
    router = pair(harness, prefill, decode, pd_pass_paths=["/named"])
    body = {"model": MODEL, "input": "hi", "kv_transfer_params": WHOLE, "bootstrap_host": "10.0.0.9"}
    assert post(harness.client(router), body, path).body == b"hello"
    assert json.loads(prefill.requests[0].body) == {"model": MODEL, "input": "hi"}
    assert (len(prefill.requests), len(decode.requests)) == (1, 0)
    router.must_rest()
    assert labelled(router, "pd_plan_total", "kind") == {"single": 1}


def test_a_clients_own_parameters_reach_nobody(harness, prefill, decode):
    body = completion(
        kv_transfer_params=WHOLE,
        ec_transfer_params={},
        bootstrap_room=1,
        vllm_xargs={"kv_transfer_params": WHOLE},
    )
    assert post(harness.client(pair(harness, prefill, decode)), body).status == 200
    to_prefill, to_decode = (json.loads(worker.captured()[0].body) for worker in (prefill, decode))
    assert to_prefill["kv_transfer_params"] == P_BASE
    assert to_decode["kv_transfer_params"]["remote_engine_id"] == prefill.engine_id
    for copy in (to_prefill, to_decode):
        assert "of-the-client" not in json.dumps(copy)
        assert not {"ec_transfer_params", "bootstrap_room"} & copy.keys()


def test_a_body_that_is_no_object_is_rejected_or_decodes_to_say_so(harness, prefill, decode):
    client = harness.client(pair(harness, prefill, decode))
    message = post(client, b'{"prompt": "hi"')
    assert message.status == 400
    assert post(client, completion()).status == 200


# ---- choosing


def test_both_stages_use_all_workers(harness, simulated):
    prefills = [simulated("prefill", cache_blocks=64) for _ in range(2)]
    decodes = [simulated("decode") for _ in range(2)]
    client = harness.client(pair(harness, prefills, decodes))
    for i in range(8):
        assert post(client, completion(f"{i} {PROMPT}")).status == 200
    assert [len(worker.captured()) for worker in prefills + decodes] == [4] * 4
    must_hold_nothing(*prefills)


@pytest.mark.parametrize(("prefills", "decodes"), [(0, 1), (1, 0)])
def test_without_workers_of_a_stage_there_is_an_error(harness, prefills, decodes):
    workers = [harness.worker() for _ in range(prefills)], [harness.worker() for _ in range(decodes)]
    message = post(harness.client(pair(harness, *workers)), completion(unknown=1))
    assert message.status == 503
    assert f"{prefills} prefill, {decodes} decode" in error_of(message)["message"]


# ---- what prefill says


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_prefill_rejects_is_the_clients(harness, decode, status):
    rejecting = harness.worker(lambda connection, _: connection.send(response(status, b"its text")))
    other = harness.worker()
    router = pair(harness, [rejecting, other], decode)
    message = post(harness.client(router), completion())
    assert (message.status, message.body) == (status, b"its text")
    assert (len(other.requests), decode.captured()) == (0, [])


@pytest.mark.parametrize("how", ["500", "502", "503", "429", "408", "reset", "cut", "refuse"])
def test_when_prefill_fails_another_one_is_tried(harness, prefill, decode, how):
    def fail(connection, _message):
        if how == "reset":
            connection.reset()
        elif how == "cut":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            connection.close()
        else:
            connection.send(response(int(how), b"no"))

    failing = harness.refusing_port() if how == "refuse" else harness.worker(fail)
    router = pair(harness, [failing, prefill], decode)
    assert post(harness.client(router), completion()).status == 200
    assert decode.kv_counters().local_prefills == 0
    must_hold_nothing(prefill)


def test_the_last_response_of_prefill_is_the_clients_if_no_other_is_left(harness, decode):
    failing = harness.worker(lambda connection, _: connection.send(response(500, b"its text")))
    message = post(harness.client(pair(harness, failing, decode)), completion())
    assert (message.status, message.body, len(failing.requests)) == (500, b"its text", 1)
    assert decode.captured() == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[{"finish_reason":"length"}]}',
        b'{"choices":[{"finish_reason":"length"}],"kv_transfer_params":null}',
        b"data: {}\n\n",
        b"",
        b'{"kv_transfer_params":{"remote_block_ids":[[1]]}}',
        prefill_response(WHOLE | {"remote_host": None}),
        json.dumps({"choices": [{"finish_reason": "abort"}], "kv_transfer_params": WHOLE}).encode(),
    ],
)
def test_without_whole_parameters_decode_computes_the_prompt(harness, simulated, decode, body):
    odd = harness.worker(lambda connection, _: connection.send(response(200, body)))
    router = pair(harness, odd, decode)
    assert text(post(harness.client(router), completion())) == text(
        post(alone(simulated, harness), completion())
    )
    assert "kv_transfer_params" not in json.loads(decode.captured()[0].body)
    assert decode.kv_counters().local_prefills == 1
    assert claims(router) == {}


def test_a_response_of_prefill_over_the_limit_is_not_read(harness, decode):
    huge = b'{"x":"' + b"y" * 100_000 + b'"}'
    odd = harness.worker(lambda connection, _: connection.send(response(200, huge)))
    router = pair(harness, odd, decode, pd_prefill_response_bytes=1_000)
    assert post(harness.client(router), completion()).status == 200
    assert decode.kv_counters().local_prefills == 1


def test_a_prefill_that_says_nothing_is_given_up(harness, decode):
    silent = harness.worker(lambda connection, _: connection.ending())
    router = pair(harness, silent, decode, pd_prefill_timeout_secs=0.1, disable_retries=True)
    assert post(harness.client(router), completion()).status == 504
    assert decode.captured() == []


# ---- what decode says


@pytest.mark.parametrize(
    ("status", "kind", "end"),
    [
        (400, "BadRequestError", "rejected"),
        (404, "NotFoundError", "rejected"),
        (422, "UnprocessableEntityError", "rejected"),
        (400, "Bad Request", "collected"),
        (403, "of something in front of decode", "collected"),
    ],
)
def test_what_decode_rejects_is_the_clients(harness, prefill, status, kind, end):
    said = json.dumps({"error": {"message": "no", "type": kind, "code": status}}).encode()

    def answer(connection: Any, message: Message) -> None:
        is_freeing = json.loads(message.body)["max_tokens"] == -3
        connection.send(response(400, b"") if is_freeing else response(status, said))

    rejecting = [harness.worker(answer) for _ in range(2)]
    router = pair(harness, prefill, rejecting)
    message = post(harness.client(router), completion())
    assert (message.status, message.body) == (status, said)
    eventually(lambda: claims(router) == {end: 1}, f"{claims(router)}")
    sent = [json.loads(one.body) for worker in rejecting for one in worker.requests]
    assert sorted(one["max_tokens"] for one in sent) == ([8] if end == "rejected" else [-3, 8])
    assert len({json.dumps(one["kv_transfer_params"]) for one in sent}) == 1


def test_what_decodes_api_rejects_without_a_word_to_prefill_holds_no_blocks(harness, prefill, decode):
    router = pair(harness, prefill, decode)
    body = completion(stream=True, stream_options={"include_usage": 7})
    assert post(harness.client(router), body).status == 400
    eventually(lambda: claims(router) == {"collected": 1}, f"{claims(router)}")
    assert counts(prefill) == {"released": 1}


def test_the_other_decode_worker_redeems_blocks_that_no_decode_has_seen(harness, prefill, decode):
    router = pair(harness, prefill, [harness.refusing_port(), decode])
    client = harness.client(router)
    for i in range(2):
        assert post(client, completion(f"{i} {PROMPT}")).status == 200
    assert len(prefill.captured()) == 2
    assert decode.kv_counters().local_prefills == 0
    ends = claims(router)
    assert ends["redeemed"] == 2
    assert ends.get("reused", 0) >= 1
    must_hold_nothing(prefill)


@pytest.mark.parametrize("stream", [False, True])
def test_fact_29_when_prefill_has_died_decode_serves_alone(harness, simulated, decode, stream):
    prefill = simulated("prefill", cache_blocks=64)
    body = completion(stream=stream)
    whole = post(alone(simulated, harness), body)
    decode.close_gate("pull_begin")
    router = pair(harness, prefill, decode)
    client = harness.client(router)
    client.send(
        request("POST", COMPLETIONS, ("Content-Type", "application/json"), body=json.dumps(body).encode())
    )
    eventually(lambda: decode.waiting_at("pull_begin") == 1, "decode was never sent the request")
    prefill.stop()
    decode.open_gate("pull_begin")
    message = client.read_response()
    assert message.status == 200
    assert texts_of(message.body) == texts_of(whole.body)
    assert decode.kv_counters().failed_pulls == 1
    assert claims(router) == {"expired": 1}


def test_fact_30_a_first_handshake_that_fails_is_served_all_the_same(harness, prefill, decode):
    decode.fail_handshakes(1)
    router = pair(harness, prefill, decode)
    client = harness.client(router)
    assert post(client, completion()).status == 200
    assert decode.kv_counters().local_prefills == 1
    assert post(client, completion(OTHER)).status == 200
    assert decode.kv_counters().local_prefills == 1


def test_a_request_loses_one_decode_worker_at_most(harness, prefill):
    def die(connection, _message):
        connection.reset()

    decodes = [harness.worker(die) for _ in range(4)]
    message = post(harness.client(pair(harness, prefill, decodes)), completion())
    assert message.status == 502
    bodies = [json.loads(one.body) for worker in decodes for one in worker.requests]
    assert len(bodies) == 2
    assert sum("kv_transfer_params" in body for body in bodies) == 1


def test_after_a_dead_engine_another_decode_serves_without_parameters(harness, prefill, decode):
    text_of_it = b'{"error":{"message":"EngineCore encountered an issue. See stack trace","code":500}}'
    dead = harness.worker(lambda connection, _: connection.send(response(500, text_of_it)))
    router = pair(harness, prefill, [dead, decode])
    client = harness.client(router)
    while not dead.requests:
        assert post(client, completion()).status == 200
    assert "kv_transfer_params" not in json.loads(decode.captured()[-1].body)


def test_429_of_the_only_decode_worker_is_the_clients_after_one_request_to_each(harness, prefill):
    busy = harness.worker(lambda connection, _: connection.send(response(429, b"busy")))
    message = post(harness.client(pair(harness, prefill, busy)), completion())
    assert (message.status, message.body) == (429, b"busy")
    assert (len(prefill.captured()), len(busy.requests)) == (1, 1)


def test_an_error_event_of_the_only_decode_worker_is_the_clients_at_the_end(harness, prefill):
    event = b'data: {"error": {"message": "no", "type": "InternalServerError", "code": 500}}\n\n'
    whole = event + b"data: [DONE]\n\n"

    def answer(connection, _message):
        connection.send(response(200, whole, ("Content-Type", "text/event-stream")))

    failing = harness.worker(answer)
    message = post(harness.client(pair(harness, prefill, failing)), completion(stream=True))
    assert (message.status, message.body) == (200, whole)
    assert ["kv_transfer_params" in json.loads(one.body) for one in failing.requests] == [True, False]


def test_fact_27_a_transfer_that_stands_still_is_given_up(harness, prefill, decode):
    decode.close_gate("pull_end")
    router = pair(harness, prefill, decode, pd_transfer_timeout_secs=0.2)
    client = harness.client(router)
    client.send(request("POST", COMPLETIONS, body=json.dumps(completion(stream=True)).encode()))
    eventually(lambda: len(decode.captured()) == 2, "decode was not sent the request again")
    assert "kv_transfer_params" not in json.loads(decode.captured()[1].body)
    assert client.read_response().status == 200
    decode.open_gate("pull_end")
    must_hold_nothing(prefill)


def test_a_response_that_is_no_stream_may_take_longer_than_a_transfer(harness, prefill, decode):
    decode.close_gate("first_byte")
    router = pair(harness, prefill, decode, pd_transfer_timeout_secs=0.1)
    client = harness.client(router)
    client.send(request("POST", COMPLETIONS, body=json.dumps(completion()).encode()))
    eventually(lambda: decode.waiting_at("first_byte") == 1, "decode never had the request")
    other = harness.client(router)
    other.send(request("POST", COMPLETIONS, body=json.dumps(completion(stream=True)).encode()))
    eventually(lambda: len(decode.captured()) == 3, "the stream was not given up")
    decode.open_gate("first_byte")
    assert [one.read_response().status for one in (client, other)] == [200, 200]
    assert sum(b"kv_transfer_params" in one.body for one in decode.captured()) == 2


def test_a_decode_worker_that_fails_all_transfers_is_not_chosen_for_ever(harness):
    whole = prefill_response(WHOLE)
    prefill = harness.worker(lambda connection, _: connection.send(response(200, whole)))
    failing = harness.worker(lambda connection, _: connection.send(response(500, b"no")))
    good = harness.worker()
    router = pair(
        harness,
        prefill,
        [failing, good],
        disable_circuit_breaker=False,
        cb_failure_threshold=3,
        retry_budget=1.0,
    )
    client = harness.client(router)
    for i in range(60):
        assert post(client, completion(f"{i} {PROMPT}")).status == 200
    assert len(failing.requests) < 20


@pytest.mark.parametrize("count", [500, 1500])
def test_as_many_removed_members_as_there_may_be_are_no_trouble(harness, count):
    inside = ",".join(f'"a{i}":1,"kv_transfer_params":1' for i in range(min(count, 500)))
    above = ",".join(f'"kv_transfer_params":1,"b{i}":2' for i in range(min(count, 500)))
    body = f'{{{above},"vllm_xargs":{{{inside}}},"prompt":"hi"}}'.encode()
    whole = prefill_response(WHOLE)
    prefill = harness.worker(lambda connection, _: connection.send(response(200, whole)))
    decode = harness.worker()
    assert post(harness.client(pair(harness, prefill, decode)), body).body == b"hello"
    for worker in (prefill, decode):
        copy = json.loads(worker.requests[0].body)
        assert copy["b499"] == 2
        assert copy["vllm_xargs"] == {f"a{i}": 1 for i in range(500)}


def test_a_decode_worker_that_accepts_no_connection_is_one_attempt(harness, prefill):
    slow = harness.slow_port()
    options = {"pd_handoff_limit_ms": 100, "connect_timeout_secs": 30, "retry_max_retries": 3}
    router = pair(harness, prefill, [slow, harness.worker()], **options)
    client = harness.client(router)
    assert [post(client, completion()).body for _ in range(2)] == [b"hello"] * 2
    assert len(prefill.captured()) <= 4


def test_what_decode_breaks_off_is_broken_off(harness, prefill):
    def answer(connection, _message):
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        connection.close()

    broken = harness.worker(answer)
    client = harness.client(pair(harness, prefill, [broken, harness.worker()]))
    client.send(request("POST", COMPLETIONS, body=json.dumps(completion()).encode()))
    data = client.read_to_end()
    assert data.endswith(b"5\r\nhello\r\n")
    assert len(broken.requests) <= 1


def test_decision_headers_name_both_workers(harness, prefill, decode):
    message = post(harness.client(pair(harness, prefill, decode, decision_headers=True)), completion())
    told = {name: value for name, value in message.fields if name.startswith("x-vllm-router-")}
    assert told["x-vllm-router-pd"] == "two_stages"
    assert told["x-vllm-router-worker"] == decode.url
    assert told["x-vllm-router-prefill-worker"] == prefill.url


@pytest.mark.parametrize("how", ["reset", "500"])
def test_without_prefill_workers_decode_may_serve_alone(harness, how):
    def fail(connection, _message):
        connection.reset() if how == "reset" else connection.send(response(500, b"no"))

    gone = harness.refusing_port()
    decodes = [harness.worker(fail), harness.worker()]
    router = pair(harness, gone, decodes, pd_on_prefill_loss="local")
    router.core.drain_worker(gone.url)
    for _ in range(2):
        assert post(harness.client(router), completion()).body == b"hello"
    router.must_rest()
    assert labelled(router, "pd_local_total", "reason") == {"prefill_loss": 2}


def unreachable(harness: Harness, how: str) -> Any:
    return harness.silent_port() if how == "timeout" else harness.refusing_port()


# A pause before an attempt is longer than a client waits here.
PAUSE = {"retry_initial_backoff_ms": 600_000, "retry_max_backoff_ms": 600_000}
ALONE = {"pd_on_prefill_loss": "local", "connect_timeout_secs": 0.1, **PAUSE}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("how", "options"),
    [
        (["refuse"], {}),
        (["timeout"], {}),
        (["refuse", "timeout"], {}),
        (["refuse"] * 3, {"retry_max_retries": 2}),
        (["refuse"] * 2, {"disable_retries": True}),
    ],
)
def test_when_no_prefill_worker_is_reached_decode_may_serve_alone(
    harness, simulated, decode, how, options, stream
):
    router = pair(harness, [unreachable(harness, one) for one in how], decode, **ALONE, **options)
    for seed in range(2):
        body = completion(f"{seed} {PROMPT}", stream=stream)
        message = post(harness.client(router), body)
        expected = post(alone(simulated, harness), body)
        assert (message.status, texts_of(message.body)) == (200, texts_of(expected.body))
    assert decode.kv_counters().local_prefills == 2
    assert all(b"kv_transfer_params" not in one.body for one in decode.captured())
    router.must_rest()
    assert labelled(router, "pd_local_total", "reason") == {"prefill_loss": 2}
    assert claims(router) == {}


def test_decode_does_not_serve_alone_while_a_prefill_worker_is_reached(harness, prefill, decode):
    router = pair(harness, [harness.refusing_port(), prefill], decode, **ALONE)
    for seed in range(4):
        assert post(harness.client(router), completion(f"{seed} {PROMPT}")).status == 200
    assert decode.kv_counters().local_prefills == 0
    assert labelled(router, "pd_local_total", "reason") == {}


@pytest.mark.parametrize(("how", "status"), [("500", 500), ("reset", 502)])
def test_what_a_prefill_worker_got_and_failed_at_is_not_left_to_decode(harness, decode, how, status):
    def fail(connection, _message):
        connection.reset() if how == "reset" else connection.send(response(500, b"no"))

    for failing in ([harness.worker(fail)], [harness.worker(fail), harness.refusing_port()]):
        router = pair(harness, failing, decode, pd_on_prefill_loss="local")
        assert post(harness.client(router), completion()).status == status
    assert decode.captured() == []


def test_without_a_worker_of_either_stage_that_is_reached_there_is_an_error(harness):
    router = pair(harness, harness.refusing_port(), harness.refusing_port(), pd_on_prefill_loss="local")
    message = post(harness.client(router), completion())
    assert (message.status, error_of(message)["code"]) == (502, "worker_unreachable")


@pytest.mark.parametrize(("how", "status"), [("refuse", 502), ("timeout", 504)])
def test_a_prefill_worker_that_is_not_reached_is_an_error_unless_decode_may_serve_alone(
    harness, decode, how, status
):
    router = pair(harness, unreachable(harness, how), decode, connect_timeout_secs=0.1)
    assert post(harness.client(router), completion()).status == status
    assert decode.captured() == []
    assert labelled(router, "pd_local_total", "reason") == {}


# ---- departures


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stage", "gate"),
    [
        ("prefill", "prefill_head"),
        ("prefill", "prefill_body"),
        ("decode", "admission"),
        ("decode", "pull_begin"),
        ("decode", "pull_end"),
        ("decode", "first_byte"),
    ],
)
def test_a_client_that_leaves_strands_no_blocks(harness, prefill, decode, stage, gate, stream):
    worker = prefill if stage == "prefill" else decode
    router = pair(harness, prefill, decode, pd_grace_ms=2_000)
    worker.close_gate(gate)
    client = harness.client(router)
    client.send(request("POST", COMPLETIONS, body=json.dumps(completion(stream=stream)).encode()))
    eventually(lambda: worker.waiting_at(gate) == 1, "the request never came to the gate")
    client.close()
    if gate == "prefill_head":
        eventually(lambda: worker.waiting_at(gate) == 0, "prefill was not closed")
        router.must_rest()
        return  # its engine has finished and is told nothing: the lease ends what it holds
    if gate == "prefill_body":  # a response that is arriving is read to its end
        worker.open_gate(gate)
        eventually(lambda: claims(router) == {"collected": 1}, "prefill was not told")
    else:
        eventually(lambda: router.loads() == [0, 1], "prefill's load")
        worker.open_gate(gate)
        router.must_rest()
    must_hold_nothing(prefill)


def test_a_client_that_leaves_while_decode_writes_ends_it(harness, prefill, decode):
    router = pair(harness, prefill, decode)
    client = harness.client(router)
    client.send(
        request("POST", COMPLETIONS, body=json.dumps(completion(tokens=100_000, stream=True)).encode())
    )
    eventually(lambda: router.loads() == [0, 1], "decode's load")
    client.close()
    router.must_rest()
    must_hold_nothing(prefill)


@pytest.mark.parametrize("orphan", ["reject", "collect"])
def test_a_client_that_leaves_in_the_handover_frees_the_blocks(harness, prefill, decode, orphan):
    """By way of another decode worker than the one that has not accepted the connection yet."""
    slow = harness.slow_port()
    router = pair(harness, prefill, [slow, decode], connect_timeout_secs=30, pd_orphan=orphan)
    client = harness.client(router)
    client.send(request("POST", COMPLETIONS, body=json.dumps(completion()).encode()))
    eventually(lambda: router.loads() == [0, 1, 0], "the first decode worker in order is the slow one")
    client.close()
    router.must_rest()
    eventually(lambda: claims(router) == {"collected": 1}, f"{claims(router)}")
    must_hold_nothing(prefill)
