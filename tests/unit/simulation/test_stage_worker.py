"""cpp/simulation/stage_worker.h, over HTTP as a correct router would drive a pair, and as a wrong one would.

"Fact n" is a row of what was seen on vLLM 0.32.0 with NIXL on CPUs.
"""

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.simulation.wire import ask, connect, eventually, read_to_end, read_until, request_bytes
from vllm_router import _core_testing as testing
from vllm_router.testing import SimulatedWorker

PROMPT = "the permission users. offer, developers license " * 20  # 960 bytes: 240 tokens, 15 blocks
OTHER = "called clearly of personal the covered permission " * 20
COMPLETIONS = "/v1/completions"
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
P_BASE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
MEMBERS = [
    "do_remote_prefill",
    "do_remote_decode",
    "remote_block_ids",
    "remote_engine_id",
    "remote_request_id",
    "remote_host",
    "remote_port",
    "tp_size",
    "dcp_size",
    "pp_size",
    "remote_num_tokens",
    "remote_blocks_expiry_time",
    "transfer_mode",
    "remote_prefill_cached_tokens",
]


@pytest.fixture
def prefill() -> Iterator[SimulatedWorker]:
    with SimulatedWorker(engine="instant", stage="prefill", cache_blocks=64) as worker:
        yield worker


@pytest.fixture
def decode() -> Iterator[SimulatedWorker]:
    with SimulatedWorker(engine="instant", stage="decode") as worker:
        yield worker


@pytest.fixture
def single() -> Iterator[SimulatedWorker]:
    with SimulatedWorker(engine="instant") as worker:
        yield worker


def post(
    worker: SimulatedWorker, body: Any, path: str = COMPLETIONS, request_id: str = "I"
) -> tuple[int, Any]:
    status, _, answer = ask(worker, path, body, headers={"X-Request-Id": request_id})
    return status, json.loads(answer)


def completion(prompt: Any = PROMPT, tokens: int = 8, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, **more}


def compute(
    prefill: SimulatedWorker, body: dict[str, Any] | None = None, path: str = COMPLETIONS, **more: Any
) -> Any:
    """P's leg, as a router makes it of the client's body; returns kv_transfer_params of the response."""
    length = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    status, answer = post(
        prefill, {**(body or completion()), length: 1, "kv_transfer_params": P_BASE, **more}, path
    )
    assert status == 200
    return answer["kv_transfer_params"]


def generate(
    decode: SimulatedWorker, params: Any, body: dict[str, Any] | None = None, path: str = COMPLETIONS
) -> tuple[int, Any]:
    """D's leg."""
    return post(decode, {**(body or completion()), "kv_transfer_params": params}, path)


def texts(answer: Any) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


def garbage(tokens: int = 8) -> str:
    return " GARBAGE" * tokens


def counts(worker: SimulatedWorker) -> dict[str, int]:
    """Those that are not 0."""
    return {name: count for name, count in vars(worker.kv_counters()).items() if count}


def metric(worker: SimulatedWorker, name: str) -> float:
    _, _, text = ask(worker, "/metrics", method="GET")
    sample = re.search(rf"^vllm:{name} (\S+)$", text.decode(), re.MULTILINE)
    assert sample, name
    return float(sample[1])


def send(worker: SimulatedWorker, body: dict[str, Any]) -> socket.socket:
    """A request whose response is not awaited."""
    stream = connect(worker)
    stream.sendall(request_bytes(body, COMPLETIONS))
    return stream


def events_of(data: bytes) -> list[str]:
    body = data.split(b"\r\n\r\n", 1)[1]
    return re.findall(r"^data: (.*?)$", body.decode(), re.MULTILINE)


# A pair that is driven as it should be.

BODIES = {
    "/v1/completions": completion(),
    "/v1/chat/completions": {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8},
    "/v1/messages": {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8},
    "/v1/responses": {"input": PROMPT, "max_output_tokens": 8},
}


def text_of(path: str, answer: Any) -> str:
    return {
        "/v1/completions": lambda: answer["choices"][0]["text"],
        "/v1/chat/completions": lambda: answer["choices"][0]["message"]["content"],
        "/v1/messages": lambda: answer["content"][0]["text"],
        "/v1/responses": lambda: answer["output"][0]["content"][0]["text"],
    }[path]()


@pytest.mark.parametrize("path", BODIES)
def test_facts_1_and_4_a_pair_writes_the_text_of_a_single_worker_on_all_routes(prefill, decode, single, path):
    params = compute(prefill, BODIES[path], path)
    status, answer = generate(decode, params, BODIES[path], path)
    assert status == 200
    assert text_of(path, answer) == text_of(path, post(single, BODIES[path], path)[1])
    assert counts(prefill) == {"pulled": 1}
    assert counts(decode) == {}


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/chat/completions"])
def test_fact_4_a_pair_streams_the_events_of_a_single_worker(prefill, decode, single, path):
    body = {**BODIES[path], "stream": True, "stream_options": {"include_usage": True}}
    params = compute(prefill, BODIES[path], path)

    def streamed(worker: SimulatedWorker, **more: Any) -> bytes:
        _, _, data = ask(worker, path, {**body, **more}, headers={"X-Request-Id": "I"})
        return re.sub(rb'"created":\d+|"sim-\d+"', b"", data)

    assert streamed(decode, kv_transfer_params=params) == streamed(single)


def test_fact_4_a_prompt_of_two_letters_is_a_block(prefill, decode, single):
    params = compute(prefill, completion("hi"))
    assert len(params["remote_block_ids"][0]) == 1
    assert texts(generate(decode, params, completion("hi"))[1]) == texts(post(single, completion("hi"))[1])


def test_the_object_has_the_fourteen_members_in_their_order(prefill):
    params = compute(prefill)
    assert list(params) == MEMBERS
    assert params == {
        **params,
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [list(range(1, 16))],
        "remote_engine_id": prefill.engine_id,
        "remote_host": "127.0.0.1",
        "tp_size": 1,
        "remote_num_tokens": 240,
        "remote_blocks_expiry_time": None,
        "transfer_mode": "pull",
        "remote_prefill_cached_tokens": 0,
    }


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/completions", r"cmpl-I-0-[0-9a-f]{8}"),
        ("/v1/chat/completions", r"chatcmpl-I-[0-9a-f]{8}"),
        ("/v1/messages", r"chatcmpl-I-[0-9a-f]{8}"),
        ("/v1/responses", r"resp_[0-9a-f]{16}_0-[0-9a-f]{8}"),
    ],
)
def test_fact_3_the_remote_request_id_is_the_clients_only_in_part(prefill, path, shape):
    ids = [compute(prefill, BODIES[path], path)["remote_request_id"] for _ in range(2)]
    assert ids[0] != ids[1]
    assert re.fullmatch(shape, ids[0])


@pytest.mark.parametrize("asked", [{}, {"kv_transfer_params": None}, {"kv_transfer_params": {}}])
def test_without_do_remote_decode_the_member_is_null_and_nothing_is_held(prefill, asked):
    _, answer = post(prefill, completion(**asked))
    assert (answer["kv_transfer_params"], answer["ec_transfer_params"]) == (None, None)
    assert counts(prefill) == {}


def test_decode_responses_carry_null_but_for_messages(prefill, decode):
    for path, body in BODIES.items():
        _, answer = generate(decode, compute(prefill, body, path), body, path)
        assert answer.get("kv_transfer_params", "absent") == ("absent" if path == "/v1/messages" else None)


def test_fact_6_a_prompt_that_stops_by_itself_has_parameters_too(prefill):
    _, answer = post(prefill, {"prompt": PROMPT, "kv_transfer_params": P_BASE})
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert list(answer["kv_transfer_params"]) == MEMBERS
    assert counts(prefill) == {"held": 1, "held_blocks": 15}


def test_fact_7_cached_tokens_of_decode_are_the_hits_of_prefill(prefill, decode):
    def cached() -> tuple[int, int]:
        params = compute(prefill)
        _, answer = generate(decode, params)
        hits = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return params["remote_prefill_cached_tokens"], hits

    assert [cached(), cached()] == [(0, 0), (224, 224)]


def test_fact_8_messages_count_input_tokens_as_prefill_did(prefill, decode):
    path = "/v1/messages"
    _, answer = generate(decode, compute(prefill, BODIES[path], path), BODIES[path], path)
    assert answer["usage"]["cache_read_input_tokens"] == 0
    assert answer["usage"]["input_tokens"] > 240


def test_a_decode_worker_without_parameters_computes_the_prompt(decode, single):
    status, answer = post(decode, completion())
    assert (status, texts(answer)) == (200, texts(post(single, completion())[1]))
    assert counts(decode) == {"local_prefills": 1}
    assert generate(decode, P_BASE)[0] == 200  # of the other stage: no transfer
    assert counts(decode) == {"local_prefills": 2}


# Prefill: blocks that are never pulled.


def test_fact_2_a_streaming_prefill_holds_blocks_and_says_nothing(prefill):
    _, headers, data = ask(prefill, COMPLETIONS, completion(tokens=1, stream=True, kv_transfer_params=P_BASE))
    assert "text/event-stream" in headers["content-type"]
    assert b"kv_transfer_params" not in data
    assert counts(prefill) == {"held": 1, "held_blocks": 15}


def test_fact_12_blocks_are_held_for_the_lease_and_then_stranded(prefill):
    compute(prefill)
    assert metric(prefill, r"kv_cache_usage_perc\{[^}]*\}") == pytest.approx(15 / 64, abs=1e-5)
    prefill.advance_leases(29)
    assert counts(prefill) == {"held": 1, "held_blocks": 15}
    prefill.advance_leases(1)
    assert counts(prefill) == {"stranded": 1}
    assert metric(prefill, r"kv_cache_usage_perc\{[^}]*\}") == 0


def test_the_lease_is_an_option():
    with SimulatedWorker(engine="instant", stage="prefill", kv_lease_s=100) as prefill:
        compute(prefill)
        prefill.advance_leases(99)
        assert counts(prefill) == {"held": 1, "held_blocks": 15}


def test_fact_13_a_client_that_leaves_while_prefill_computes_frees_the_blocks():
    with SimulatedWorker(engine="instant", stage="prefill", step_ms=3_600_000) as prefill:
        stream = send(prefill, completion(tokens=1, kv_transfer_params=P_BASE))
        eventually(lambda: prefill.stats()["running"] == 1)
        stream.close()
        eventually(lambda: counts(prefill) == {"aborted": 1})


@pytest.mark.parametrize("gate", ["prefill_head", "prefill_body"])
def test_a_client_that_leaves_after_the_finish_strands_the_blocks(prefill, gate):
    prefill.close_gate(gate)
    stream = send(prefill, completion(tokens=1, kv_transfer_params=P_BASE))
    eventually(lambda: prefill.waiting_at(gate) == 1)
    stream.close()
    eventually(lambda: prefill.waiting_at(gate) == 0)
    assert counts(prefill) == {"held": 1, "held_blocks": 15}


def test_the_gates_of_prefill_hold_its_head_and_then_its_body(prefill):
    prefill.close_gate("prefill_head")
    prefill.close_gate("prefill_body")
    with send(prefill, completion(tokens=1, kv_transfer_params=P_BASE)) as stream:
        eventually(lambda: prefill.waiting_at("prefill_head") == 1)
        prefill.open_gate("prefill_head")
        assert read_until(stream, b"\r\n\r\n").endswith(b"\r\n\r\n")  # nothing behind the head
        eventually(lambda: prefill.waiting_at("prefill_body") == 1)
        prefill.open_gate("prefill_body")
        assert read_until(stream, b'"ec_transfer_params":null}')


def test_prefill_waits_for_free_blocks():
    with SimulatedWorker(engine="instant", stage="prefill", cache_blocks=20) as prefill:
        compute(prefill)
        with send(prefill, completion(OTHER, 1, kv_transfer_params=P_BASE)) as stream:
            eventually(lambda: prefill.stats()["requests"] == 2)
            assert counts(prefill) == {"held": 1, "held_blocks": 15}
            prefill.advance_leases(30)
            read_until(stream, b'"ec_transfer_params":null}')


# More than one request to the engine.


def test_fact_9_two_choices_have_one_object_and_strand_the_blocks_of_the_other(prefill, decode, single):
    params = compute(prefill, n=2)
    assert re.fullmatch(r"1_cmpl-I-0-[0-9a-f]{8}", params["remote_request_id"])
    _, answer = generate(decode, params, completion(n=2))
    assert texts(answer) == texts(post(single, completion(n=2))[1])
    assert counts(prefill) == {"pulled": 1, "held": 1, "held_blocks": 15}


def test_fact_10_a_list_of_prompts_gets_the_blocks_of_the_first_for_all(prefill, decode, single):
    prompts = [PROMPT, "short " * 20]
    params = compute(prefill, completion(prompts))
    status, answer = generate(decode, params, completion(prompts))
    assert status == 200
    assert texts(answer) == [texts(post(single, completion())[1])[0], garbage()]
    assert counts(prefill)["held"] == 1


def test_fact_35_a_longer_second_prompt_ends_the_decode_engine(prefill, decode):
    prompts = ["hi there", PROMPT]
    params = compute(prefill, completion(prompts))
    status, answer = generate(decode, params, completion(prompts))
    assert (status, answer["error"]["message"]) == (500, ENGINE_DEAD)
    assert counts(decode) == {"killed": 1}


# Decode: what it sends when, and who is told when its client leaves.


def test_fact_11_the_head_of_a_stream_is_sent_before_the_engine_has_it(prefill, decode):
    decode.close_gate("admission")
    body = completion(stream=True, kv_transfer_params=compute(prefill))
    with send(decode, body) as stream:
        head = read_until(stream, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert head.endswith(b"\r\n\r\n")
        decode.open_gate("admission")
        assert read_until(stream, b"[DONE]")


def test_a_client_that_leaves_before_the_engine_has_the_request_gives_no_notice(prefill, decode):
    decode.close_gate("admission")
    send_and_leave(decode, "admission", compute(prefill))
    assert counts(prefill) == {"held": 1, "held_blocks": 15}


def send_and_leave(decode: SimulatedWorker, gate: str, params: Any, **more: Any) -> None:
    """Closes the gate's request's connection; returns when the worker has noticed."""
    stream = send(decode, completion(kv_transfer_params=params, **more))
    eventually(lambda: decode.waiting_at(gate) == 1)
    stream.close()
    eventually(lambda: decode.waiting_at(gate) == 0)


def test_fact_14_a_client_that_leaves_before_scheduling_frees_the_blocks_of_prefill(prefill, decode):
    decode.close_gate("pull_begin")
    send_and_leave(decode, "pull_begin", compute(prefill), stream=True)
    eventually(lambda: counts(prefill) == {"released": 1})
    assert counts(decode) == {"aborted": 1}


def test_fact_15_a_client_that_leaves_in_the_middle_of_a_stream_leaves_nothing_behind(prefill):
    with SimulatedWorker(engine="instant", stage="decode", step_ms=2) as decode:
        body = completion(tokens=100_000, stream=True, kv_transfer_params=compute(prefill))
        with send(decode, body) as stream:
            read_until(stream, b'"text":')
        eventually(lambda: counts(decode) == {"aborted": 1})
        eventually(lambda: metric(decode, r"kv_cache_usage_perc\{[^}]*\}") == 0)
    assert counts(prefill) == {"pulled": 1}


@pytest.mark.parametrize("wrong", [{"max_tokens": -3}, {"model": "nobody"}])
def test_fact_16_a_request_that_is_refused_frees_the_blocks_of_prefill(prefill, decode, wrong):
    status, _ = generate(decode, compute(prefill), {**completion(), **wrong})
    assert status == (404 if "model" in wrong else 400)
    assert counts(prefill) == {"released": 1}


@pytest.mark.parametrize("wrong", [{"max_tokens": "7"}, {"stream": 7}, {"stream_options": 7}, {"n": 1.5}])
def test_a_request_of_wrong_types_leaves_the_blocks_of_prefill_to_their_lease(prefill, decode, wrong):
    status, _ = generate(decode, compute(prefill), {**completion(), **wrong})
    assert status == 400
    assert prefill.kv_counters().held == 1
    prefill.advance_leases(31)
    assert counts(prefill) == {"stranded": 1}


def test_the_first_byte_of_decode_can_be_held(prefill, decode):
    decode.close_gate("first_byte")
    for stream_it, end in ((True, b"[DONE]"), (False, b'"ec_transfer_params":null}')):
        with send(decode, completion(stream=stream_it, kv_transfer_params=compute(prefill))) as stream:
            eventually(lambda: decode.waiting_at("first_byte") == 1)
            decode.open_gate("first_byte")
            assert read_until(stream, end)
        decode.close_gate("first_byte")


# Pulls that read what is not theirs.


def test_fact_18_a_second_pull_is_right_while_the_blocks_are_not_reused(prefill, decode):
    params = compute(prefill)
    first, second = generate(decode, params), generate(decode, params)
    assert texts(first[1]) == texts(second[1])
    assert counts(prefill) == {"pulled": 1, "double_pull": 1}


def test_fact_19_a_pull_of_reused_blocks_is_200_with_wrong_text(prefill, decode):
    params = compute(prefill)
    generate(decode, params)
    for number in range(5):
        post(prefill, completion(f"{number} {OTHER}"))  # 16 blocks each, of 64
    status, answer = generate(decode, params)
    assert (status, texts(answer)) == (200, [garbage()])
    assert answer["choices"][0]["finish_reason"] == "length"


def test_fact_36_a_pull_after_the_lease_is_200_and_taken_for_wrong_text(prefill, decode):
    params = compute(prefill)
    prefill.advance_leases(31)
    status, answer = generate(decode, params)
    assert (status, texts(answer)) == (200, [garbage()])
    assert counts(prefill) == {"stranded": 1, "late_pull": 1}


def test_the_blocks_of_another_prompt_are_garbage_in_a_stream_too(prefill, decode):
    compute(prefill)
    params = compute(prefill, completion(OTHER))
    body = completion(stream=True, kv_transfer_params=params)
    _, _, data = ask(decode, COMPLETIONS, body)
    assert data.count(b'"text":" GARBAGE"') == 8


def test_fact_24_a_wrong_request_id_reads_right_and_leaves_the_blocks(prefill, decode, single):
    params = {**compute(prefill), "remote_request_id": "cmpl-other-0-00000000"}
    assert texts(generate(decode, params)[1]) == texts(post(single, completion())[1])
    assert counts(prefill) == {"held": 1, "held_blocks": 15, "unknown_pull": 1}


def test_fact_20_the_port_of_a_known_engine_is_not_used(prefill, decode):
    generate(decode, compute(prefill))
    assert generate(decode, {**compute(prefill), "remote_port": 1})[0] == 200
    assert counts(decode) == {}


# Transfers that fail.

FAILURES = {
    "fact 21, a dead side port": {"remote_port": 1},
    "fact 22, another engine id": {"remote_engine_id": "95fb9348-8d31-4383-b4aa-7d5ffe6ba0b3"},
    "fact 23, blocks out of range": {"remote_block_ids": [list(range(9001, 9016))]},
}


@pytest.mark.parametrize("wrong", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("policy", ["fail", "recompute"])
def test_facts_21_to_23_a_transfer_that_fails(prefill, single, policy, wrong):
    with SimulatedWorker(engine="instant", stage="decode", kv_load_failure_policy=policy) as decode:
        status, answer = generate(decode, {**compute(prefill), **wrong})
        if policy == "fail":
            assert status == 500
            assert answer == {
                "error": {
                    "message": "Internal server error",
                    "type": "InternalServerError",
                    "param": None,
                    "code": 500,
                }
            }
            assert counts(decode) == {"failed_pulls": 1}
        else:
            assert (status, texts(answer)) == (200, texts(post(single, completion())[1]))
            assert counts(decode) == {"failed_pulls": 1, "local_prefills": 1}
        assert counts(prefill) == {"held": 1, "held_blocks": 15}  # it gets no notice


def test_fact_29_a_dead_prefill_worker_is_500_or_an_event_and_decode_lives_on(prefill, decode):
    params = compute(prefill)
    generate(decode, params)  # the engine is known
    prefill.stop()
    status, answer = generate(decode, params)
    assert (status, answer["error"]["message"]) == (500, "Internal server error")
    _, headers, data = ask(decode, COMPLETIONS, completion(stream=True, kv_transfer_params=params))
    assert "text/event-stream" in headers["content-type"]
    assert data == (
        b'data: {"error": {"message": "Internal server error", "type": "InternalServerError", '
        b'"param": null, "code": 500}}\n\ndata: [DONE]\n\n'
    )
    assert ask(decode, "/health", method="GET")[0] == 200
    assert post(decode, completion())[0] == 200


def test_fact_30_the_first_handshake_of_a_fresh_decode_worker_may_fail(prefill, decode):
    decode.fail_handshakes(1)
    params = compute(prefill)
    assert generate(decode, params)[0] == 500
    assert counts(prefill) == {"held": 1, "held_blocks": 15}
    assert generate(decode, compute(prefill))[0] == 200


# Parameters that end the engine.


@pytest.mark.parametrize("stream", [False, True])
def test_fact_25_fewer_blocks_than_the_prompt_needs_end_the_engine(prefill, decode, stream):
    params = compute(prefill)
    params["remote_block_ids"][0].pop()
    body = completion(stream=stream, kv_transfer_params=params)
    status, _, data = ask(decode, COMPLETIONS, body)
    assert status == (200 if stream else 500)
    assert ENGINE_DEAD.encode() in data
    for path in BODIES:
        status, _, data = ask(decode, path, BODIES[path])
        assert (status, ENGINE_DEAD.encode() in data) == (500, True)
    assert ask(decode, "/health", method="GET")[0] == 503
    assert counts(decode) == {"killed": 1}
    assert counts(prefill) == {"held": 1, "held_blocks": 15}


@pytest.mark.parametrize(
    "member",
    ["remote_host", "remote_port", "remote_engine_id", "remote_request_id", "remote_block_ids"],
)
@pytest.mark.parametrize("how", ["absent", "null"])
def test_fact_26_half_parameters_hang_and_end_the_engine_when_the_client_leaves(prefill, decode, member, how):
    # The host alone was seen on an engine; the others are taken to be as bad.
    params = compute(prefill)
    params[member] = None
    if how == "absent":
        del params[member]
    stream = send(decode, completion(kv_transfer_params=params))
    eventually(lambda: metric(decode, r"num_requests_waiting\{[^}]*\}") == 1)
    assert ask(decode, "/health", method="GET")[0] == 200
    stream.close()
    eventually(lambda: counts(decode).get("killed") == 1)
    assert ask(decode, "/health", method="GET")[0] == 503


def test_a_worker_with_a_request_that_hangs_stops(prefill):
    with SimulatedWorker(engine="instant", stage="decode") as decode:
        params = compute(prefill)
        del params["remote_host"]
        with send(decode, completion(kv_transfer_params=params)) as stream:
            eventually(lambda: metric(decode, r"num_requests_waiting\{[^}]*\}") == 1)
            decode.stop()
            assert read_to_end(stream) == b""
        assert "killed" not in counts(decode)


@pytest.mark.parametrize("waits", ["engine", "stream", "pull_end", "hang"])
def test_an_engine_that_ends_takes_its_other_requests_along(prefill, waits):
    with SimulatedWorker(engine="instant", stage="decode", step_ms=20) as decode:
        params = compute(prefill)
        if waits == "pull_end":
            decode.close_gate("pull_end")
        if waits == "hang":
            del params["remote_host"]
        body = completion(tokens=100_000, stream=waits == "stream", kv_transfer_params=params)
        with send(decode, body) as stream:
            if waits in ("engine", "stream"):
                eventually(lambda: decode.stats()["running"] == 1)
            elif waits == "hang":
                eventually(lambda: metric(decode, r"num_requests_waiting\{[^}]*\}") == 1)
            else:
                eventually(lambda: decode.waiting_at("pull_end") == 1)
            short = compute(prefill)
            short["remote_block_ids"][0].pop()
            status, answer = generate(decode, short)
            assert (status, answer["error"]["message"]) == (500, ENGINE_DEAD)
            assert b"EngineCore" not in read_to_end(stream)
        assert counts(decode)["killed"] == 1


# A prefill worker that does not respond: the pull has begun and does not end.


def test_fact_33_a_request_that_waits_for_blocks_counts_as_waiting(prefill, decode):
    decode.close_gate("pull_end")
    with send(decode, completion(stream=True, kv_transfer_params=compute(prefill))) as stream:
        eventually(lambda: decode.waiting_at("pull_end") == 1)
        seen = {
            name: metric(decode, name + r"[^}]*\}")
            for name in (
                r"num_requests_waiting\{",
                r"num_requests_running\{",
                r'num_requests_waiting_by_reason\{.*reason="deferred"',
                r'num_requests_kv_fetch_by_stage\{.*stage="in_progress"',
                r'num_requests_kv_fetch_by_stage\{.*stage="waiting_to_start"',
            )
        }
        assert list(seen.values()) == [1, 0, 1, 1, 0]
        assert metric(decode, r"kv_cache_usage_perc\{[^}]*\}") > 0
        decode.open_gate("pull_end")
        read_until(stream, b"[DONE]")
    assert metric(decode, r"num_requests_waiting\{[^}]*\}") == 0


def test_facts_27_and_34_a_pull_that_has_begun_is_not_cancelled(prefill, decode):
    decode.close_gate("pull_end")
    send_and_leave(decode, "pull_end", compute(prefill))
    eventually(lambda: counts(decode) == {"leaked_at_decode": 15})
    assert metric(decode, r"num_requests_waiting\{[^}]*\}") == 0
    assert metric(decode, r"kv_cache_usage_perc\{[^}]*\}") > 0
    assert counts(prefill) == {"held": 1, "held_blocks": 15}
    decode.open_gate("pull_end")  # the prefill worker goes on
    eventually(lambda: counts(prefill) == {"pulled": 1})
    eventually(lambda: counts(decode) == {"aborted": 1})
    assert metric(decode, r"kv_cache_usage_perc\{[^}]*\}") == 0


def test_fact_28_the_death_of_prefill_frees_the_blocks_of_decode(prefill, decode):
    decode.close_gate("pull_end")
    send_and_leave(decode, "pull_end", compute(prefill))
    eventually(lambda: counts(decode) == {"leaked_at_decode": 15})
    prefill.stop()
    eventually(lambda: counts(decode) == {"aborted": 1, "failed_pulls": 1})


@pytest.mark.parametrize("gate", ["admission", "pull_begin", "pull_end", "first_byte"])
def test_a_worker_stops_while_requests_wait_at_a_gate(prefill, gate):
    with SimulatedWorker(engine="instant", stage="decode") as decode:
        decode.close_gate(gate)
        with send(decode, completion(kv_transfer_params=compute(prefill))) as stream:
            eventually(lambda: decode.waiting_at(gate) == 1)
            decode.stop()
            assert read_to_end(stream) == b""


def test_a_crash_of_prefill_is_its_death(decode):
    with SimulatedWorker(engine="instant", stage="prefill", crash_after=1) as prefill:
        params = compute(prefill)
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            ask(prefill, COMPLETIONS, completion())
        eventually(lambda: prefill.crashed)
        assert generate(decode, params)[0] == 500


# What arrived.


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt":"hi","max_tokens":1,"max_tokens":2}',
        b'{"prompt":"hi","kv_transfer_params":{"remote_port":1,"remote_port":2}}',
        rb'{"prompt":"hi","a":[{"x":1,"\u0078":2}]}',
        b'{"prompt":"hi","kv_transfer_params":[]}',
    ],
)
def test_a_member_that_is_there_twice_is_refused_and_counted(prefill, body):
    status, _, _ = ask(prefill, COMPLETIONS, body)
    assert status == 400
    assert counts(prefill) == {"duplicate_members": 1}


def test_each_leg_is_captured_as_it_arrived(decode):
    body = b'{ "prompt":"hi",\n "max_tokens":1.0e0 }'  # refused, and captured all the same
    ask(decode, COMPLETIONS, body, headers={"X-Request-Id": "a", "x-REQUEST-id": "b"})
    ask(decode, "/health", method="GET")
    (request,) = decode.captured()
    assert (request.path, request.body) == (COMPLETIONS, body)
    assert ("x-REQUEST-id", "b") in request.headers
    assert request.header("x-request-ID") == "a"
    assert request.header("nothing") is None


def test_a_prompt_has_the_contents_of_its_chain_and_of_its_rest():
    whole = testing.kv_contents(b"x" * 128, 16)
    assert len(whole) == 2
    assert len(testing.kv_contents(b"x" * 129, 16)) == 3
    assert testing.kv_contents(b"x" * 129, 16)[:2] == whole
    assert testing.kv_contents(b"x" * 129, 16)[2] != testing.kv_contents(b"x" * 130, 16)[2]


# Options.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stage": "encode"}, 'stage is "encode"; it must be "" or "prefill" or "decode"'),
        ({"connector": "mooncake"}, 'connector is "mooncake"; it must be "nixl"'),
        ({"kv_load_failure_policy": "x"}, '"fail" or "recompute"'),
        ({"kv_lease_s": 0.0}, "kv_lease_s is 0; it must be from 0.001"),
    ],
)
def test_options_out_of_their_range_are_refused(options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        SimulatedWorker(**options)


def test_a_worker_without_a_stage_has_no_gates_and_no_null_members(single):
    for call in (single.kv_counters, single.captured, lambda: single.close_gate("admission")):
        with pytest.raises(ValueError, match="the worker has no stage"):
            call()
    _, answer = post(single, completion(kv_transfer_params=P_BASE))
    assert "kv_transfer_params" not in answer


def test_a_gate_that_is_none_is_refused(decode):
    with pytest.raises(ValueError, match='the gate is "door"; it must be one of prefill_head'):
        decode.close_gate("door")
