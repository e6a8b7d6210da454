"""cpp/disaggregation/pd_plan.h: every row of which requests take two stages, and of what is edited."""

import json

import pytest

from tests.growth import assert_linear
from tests.rows import for_each_row
from tests.unit.disaggregation.test_prefill_response import CASES
from vllm_router._core_testing import decode_copy, pd_plan, pd_route_of, prefill_copy

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
MAX = {"max_tokens": 7}
INLINE = "data:image/png;base64,AA"


def user(*parts):
    return {"messages": [{"role": "user", "content": list(parts)}]}


def plan(route, members):
    body = members if isinstance(members, bytes) else json.dumps(members).encode()
    made = pd_plan(route, body, "nixl")
    return made["kind"], made["reason"]


@for_each_row(
    ("method", "path", "route"),
    [
        ("POST", "/v1/completions", "completions"),
        ("POST", "/v1/chat/completions", "chat"),
        ("POST", "/v1/chat/completions/batch", "batch_chat"),
        ("POST", "/v1/responses", "responses"),
        ("POST", "/v1/messages", "messages"),
        ("POST", "/inference/v1/generate", "inference_generate"),
        ("POST", "/generate", "generate"),
        ("POST", "/invocations", "extra"),
        ("POST", "/v1/embeddings", "one_engine"),
        ("POST", "/tokenize", "other"),
        ("GET", "/v1/completions", "other"),
        ("GET", "/invocations", "other"),
        ("POST", "/abort_request", "other"),
        ("PUT", "/abort_request", "other"),
        ("PUT", "/invocations", "unknown"),
        ("POST", "/v1/responses/resp_1-a/cancel", "other"),
        ("DELETE", "/v1/responses/resp_1", "other"),
        ("POST", "/v1/responses/resp_1", "unknown"),
        ("DELETE", "/v1/responses/..%2fcompletions", "unknown"),
        ("POST", "/v1/responses/../cancel", "unknown"),
        ("POST", "/v1/responses//cancel", "unknown"),
        ("POST", "/v1/responses/a/../../generate/cancel", "unknown"),
    ],
)
def test_routes(method, path, route):
    assert pd_route_of(method, path, ["/invocations"], ["/abort_request"]) == route


def test_a_websocket_is_known_only_by_its_name():
    for path in ("/v1/realtime", "/v1/completions", "/x"):
        assert pd_route_of("GET", path, websocket=True) == "unknown"
        assert pd_route_of("GET", path, passed=[path], websocket=True) == "other"


SPELLINGS = [
    *("/v1/%63ompletions", "/v1%2fcompletions", "//v1/completions", "/v1//completions", "/v1/completions/"),
    *("/v1/./completions", "/x/../v1/completions", "/V1/completions", "/v1/completions;a", "/v1/Completions"),
    *("/v1/completions%20", "/v1/completions%00", "/v1/%2e%2e/v1/completions", "v1/completions", ""),
]


@for_each_row("path", [*SPELLINGS, "/vertex_generate", "/collective_rpc", "/unknown"])
def test_row_5_what_is_not_known_by_this_spelling_is_unknown(path):
    for method in ("POST", "PUT", "PATCH", "DELETE", "post", "QUERY", "LINK"):
        assert pd_route_of(method, path) == "unknown"
    for method in ("GET", "HEAD", "OPTIONS"):
        assert pd_route_of(method, path) == "other"


def test_row_5_only_post_generates():
    for method in ("PUT", "PATCH", "DELETE", "post", "QUERY"):
        for path in ("/generate", "/v1/completions", "/v1/embeddings", "/tokenize"):
            assert pd_route_of(method, path) == "unknown"


@for_each_row(
    ("route", "members", "reason"),
    [
        ("completions", b'{"prompt":"a","prompt":["a","b"]}', "batch"),
        ("completions", b'{"prompt":["a","b"],"prompt":"a"}', "batch"),
        ("completions", rb'{"pr\u006fmpt":["a","b"]}', "batch"),
        ("chat", {"messages": [[{"role": "user", "content": "hi"}]]}, "batch"),
        ("batch_chat", CHAT, "batch"),
        ("inference_generate", {"token_ids": [1], "sampling_params": {"n": 2}}, "several_sequences"),
        ("completions", b'{"prompt":"hi","max_tokens":NaN}', "wrong_type"),
        ("completions", b'{"prompt":"hi","max_tokens":tru}', "wrong_type"),
        ("inference_generate", b'{"token_ids":[1],"sampling_params":{},"sampling_params":{}}', "duplicate"),
        ("responses", {"input": "hi", "conversation": {"id": "conv_1"}}, "stored_response"),
        # cut to the context's length without max_tokens, which the copies do not share
        ("completions", {"prompt": "hi", "truncate_prompt_tokens": -1}, "truncation"),
        ("chat", {**CHAT, "truncate_prompt_tokens": 0}, "truncation"),
        ("chat", {**CHAT, "truncate_prompt_tokens": "5"}, "wrong_type"),
        ("responses", {"input": "hi", "truncation": "auto"}, "truncation"),
        # what each worker would fetch by itself, or know by a name that the client chooses
        ("chat", user({"type": "image_url", "image_url": {"url": "http://h/x"}}), "media"),
        ("chat", user({"type": "image_url", "image_url": {"url": INLINE}, "uuid": "u"}), "media"),
        ("chat", user({"text": "hi", "image_url": "http://h/x"}), "media"),
        ("chat", user({"role": "user", "image_url": "http://h/x"}), "media"),
        (
            "messages",
            {**user({"type": "image", "source": {"type": "url", "url": "http://h"}}), **MAX},
            "media",
        ),
        (
            "messages",
            {
                **user(
                    {"type": "tool_result", "content": [{"type": "image", "source": {"url": "http://h"}}]}
                ),
                **MAX,
            },
            "media",
        ),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "media"),
        ("responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}, "media"),
        # decode's API rejects it before its engine could free prefill's blocks
        ("chat", {**CHAT, "stream_options": {}}, "wrong_type"),
        ("completions", b'{"prompt":"a","stream":true,"stream":false,"stream_options":{}}', "wrong_type"),
        ("completions", {"prompt": "hi", "stream": True, "prompt_logprobs": 1}, "wrong_type"),
        ("messages", CHAT, "wrong_type"),
    ],
)
def test_local_and_why(route, members, reason):
    assert plan(route, members) == ("local", reason)


def test_other_routes_are_single_whatever_they_send():
    for body in (b"", b'{"input":["a","b"]}', b"--x\r\n", b"text", b"[1]"):
        made = pd_plan("other", body, "nixl")
        assert (made["kind"], made["plain"]) == ("single", body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt":"hi"',
        b'{"prompt":"hi"} x',
        '{"kv_transfer_params":{}}'.encode("utf-16"),
        b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}',
    ],
)
def test_what_a_worker_might_read_otherwise_is_rejected_on_every_route(body):
    for route in ("completions", "chat", "responses", "other"):
        made = pd_plan(route, body, "nixl")
        assert made["kind"] == "rejected"
        assert made["error"].startswith(
            "The request body is not a JSON object in UTF-8: reading stopped at byte "
        )


def test_a_body_that_is_no_object_is_rejected_where_one_is_needed():
    for body in (b"", b"[]", b"text"):
        assert pd_plan("chat", body, "nixl")["kind"] == "rejected"


def test_too_many_members_are_rejected_with_the_limit():
    many = json.dumps({str(i): i for i in range(1025)}).encode()
    assert (
        pd_plan("other", many, "nixl")["error"] == "The request body has more than 1024 members; send fewer."
    )
    inside = b'{"vllm_xargs":' + many + b"}"
    assert pd_plan("completions", inside, "nixl")["error"].startswith(
        "sampling_params or another member with further arguments has more than 1024"
    )


@pytest.mark.parametrize(
    "route",
    ["completions", "chat", "responses", "messages", "inference_generate", "extra", "other", "batch_chat"],
)
def test_no_copy_of_any_kind_has_the_clients_transfer_members(route):
    body = (
        b'{"kv_transfer_params":{"remote_host":"x"},"ec_transfer_params":1,"bootstrap_room":2,"a":1.0,'
        b'"extra_args":{"kv_transfer_params":{}}}'
    )
    made = pd_plan(route, body, "nixl")
    assert made["plain"] == b'{"extra_args":{},"a":1.0}'
    assert made["stripped"] == {
        "kv_transfer_params": 2,
        "ec_transfer_params": 1,
        "bootstrap": 1,
        "kv_hints": 0,
        "request_id": 0,
        "rank": 0,
        "unreadable": False,
    }


KV = (
    b'"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,'
    b'"remote_block_ids":null,"remote_host":null,"remote_port":null}'
)


@for_each_row(
    ("route", "body", "copy"),
    [
        # max_tokens, and stream, are inserted if absent.
        ("completions", b'{"prompt":"hi"}', b'{"max_tokens":1,"stream":false,KV,"prompt":"hi"}'),
        (
            "completions",
            b'{"model":"m","stream":true,"max_tokens":7,"prompt":"hi"}',
            b'{"max_tokens":1,"stream":false,KV,"model":"m","prompt":"hi"}',
        ),
        ("completions", b'{"stream_options":{},"a":1}', b'{"max_tokens":1,"stream":false,KV,"a":1}'),
        # responses have a limit of their own, and prefill stores nothing
        (
            "responses",
            b'{"input":"hi","store":true,"max_output_tokens":9}',
            b'{"max_output_tokens":1,"store":false,"stream":false,KV,"input":"hi"}',
        ),
        # inside sampling_params
        (
            "inference_generate",
            b'{"token_ids":[1],"sampling_params":{"max_tokens":9,"min_tokens":3,"top_p":1.0}}',
            b'{"sampling_params":{"max_tokens":1,"min_tokens":1,"top_p":1.0},"stream":false,KV,"token_ids":[1]}',
        ),
        (
            "inference_generate",
            b'{"sampling_params":{"min_tokens":1,"extra_args":{"kv_transfer_params":1,"x":1.0}}}',
            b'{"sampling_params":{"extra_args":{"x":1.0},"max_tokens":1,"min_tokens":1},"stream":false,KV}',
        ),
        (
            "inference_generate",
            b'{"token_ids":[1]}',
            b'{"sampling_params":{"max_tokens":1,"min_tokens":1},"stream":false,KV,"token_ids":[1]}',
        ),
        (
            "inference_generate",
            b'{"sampling_params":null,"token_ids":[1]}',
            b'{"sampling_params":{"max_tokens":1,"min_tokens":1},"stream":false,KV,"token_ids":[1]}',
        ),
        # the client's own, and repeated or escaped names
        (
            "completions",
            rb'{"max_t\u006fkens":7,"kv_transfer_params":{"remote_host":"x"},"max_tokens":8,"bootstrap_room":1,"a":1}',
            b'{"max_tokens":1,"stream":false,KV,"a":1}',
        ),
        # everything else as it was
        (
            "completions",
            b'{"z":1.0, "y" : 1e5,"x":12345678901234567890,"w":"\\u00e9\\/", "stop":[],"eos":false}',
            b'{"max_tokens":1,"stream":false,KV,'
            b'"z":1.0, "y" : 1e5,"x":12345678901234567890,"w":"\\u00e9\\/", "stop":[],"eos":false}',
        ),
    ],
)
def test_the_prefill_copy(route, body, copy):
    assert prefill_copy(route, body, "nixl") == copy.replace(b"KV", KV)


def test_the_decode_copy_is_the_clients_body_and_the_parameters():
    body = b'{"model":"m","stream":true,"stream_options":{},"max_tokens":7,"min_tokens":3,"prompt":"hi"}'
    whole = CASES["completions"]["prefill_response"].encode()
    raw = whole[whole.index(b'{"do_remote_prefill"') : whole.index(b',"ec_transfer_params"')]
    assert decode_copy("completions", body, "nixl", whole) == (
        b'{"kv_transfer_params":' + raw + b"," + body[1:],
        True,
    )
    assert decode_copy("completions", body, "nixl", b'{"kv_transfer_params":null}') == (body, False)


@for_each_row(
    "case", [name for name, case in CASES.items() if {"client_request", "decode_request"} <= set(case)]
)
def test_real_requests_get_the_copies_that_real_engines_took(case):
    recorded = CASES[case]
    body = json.dumps(recorded["client_request"]).encode()
    route = pd_route_of("POST", recorded["path"], [])
    if case in ("n2", "list2"):  # recorded: a wrong text, and blocks that were never fetched
        assert pd_plan(route, body, "nixl")["kind"] == "local"
        return
    assert pd_plan(route, body, "nixl")["kind"] == "two_stages"
    prefill = json.loads(prefill_copy(route, body, "nixl"))
    assert list(prefill["kv_transfer_params"]) == list(recorded["prefill_request"]["kv_transfer_params"])
    if case == "generate":  # recorded without its sampling_params changed, and rejected
        return
    assert prefill == recorded["prefill_request"]
    decode = json.loads(decode_copy(route, body, "nixl", recorded["prefill_response"].encode())[0])
    assert decode == recorded["decode_request"]


# Behind SGLang nothing is local: each prompt has a room, and a room is of one sequence.


@for_each_row(
    ("route", "body", "listed"),
    [
        ("completions", b'{"prompt":"hi","n":1}', None),
        ("completions", b'{"prompt":[1,2,3]}', None),
        ("completions", b'{"prompt":["hi"]}', 1),
        ("completions", b'{"prompt":["a","b"]}', 2),
        ("completions", b'{"prompt":[[1],[2],[3]]}', 3),
        ("completions", b'{"prompt":[]}', None),
        ("generate", b'{"text":["a","b"],"input_ids":null}', 2),
        ("generate", b'{"input_ids":[[1],[2]],"sampling_params":[{"n":1},{}]}', 2),
        ("generate", b'{"input_embeds":[[1.5,2.5],[1,2]]}', None),
        ("generate", b'{"input_embeds":[[[1.5]],[[2.5]]]}', 2),
        ("generate", b'{"text":["a","b"],"prompt":["c","d"]}', 2),
        ("chat", b'{"messages":[{},{}],"prompt":["a","b"]}', None),
        # nothing is replaced in prefill's copy, so both workers reject it alike
        ("completions", b'{"prompt":7,"max_tokens":"7","stream":"x","best_of":2}', None),
        ("completions", b'{"prompt":"hi","n":null,"stream_options":{}}', None),
        ("responses", b'{"input":"hi","background":true,"sampling_params":{"n":2}}', None),
        ("completions", b'{"prompt":[' + b'"a",' * 4095 + b'"a"]}', 4096),
    ],
)
def test_behind_sglang_a_list_has_a_room_for_each_prompt(route, body, listed):
    made = pd_plan(route, body, "sglang")
    assert (made["kind"], made["listed_prompts"], made["error"]) == ("two_stages", listed, "")
    assert made["plain"] == body


@pytest.mark.parametrize(
    ("route", "body", "n"),
    [
        ("completions", b'{"prompt":"hi","n":2}', "2"),
        ("chat", b'{"messages":[{}],"n":10}', "10"),
        ("completions", b'{"prompt":"hi","n":2,"n":1}', "2"),
        ("completions", rb'{"prompt":"hi","\u006e":1e3}', "1e3"),
        ("completions", b'{"prompt":"hi","n":"2"}', '"2"'),
        ("generate", b'{"text":"hi","sampling_params":{"n":2}}', "2"),
        ("generate", b'{"text":["a","b"],"sampling_params":[{},{"n":3}]}', "3"),
        ("completions", b'{"prompt":"hi","n":' + b"1" * 99 + b"}", "1" * 32),
    ],
)
def test_behind_sglang_several_sequences_are_rejected(route, body, n):
    made = pd_plan(route, body, "sglang")
    assert made["kind"] == "rejected"
    assert made["error"] == (
        f"n is {n}; behind SGLang prefill/decode one request makes one sequence: send n requests"
    )


def test_behind_sglang_a_list_has_limits():
    many = b'{"prompt":[' + b'"a",' * 4096 + b'"a"]}'
    assert pd_plan("completions", many, "sglang")["error"] == (
        "The request has more than 4096 prompts; send fewer."
    )
    for body in (b'{"text":["a","b"],"prompt":["c"]}', b'{"text":"a","text":["a","b"]}'):
        assert pd_plan("generate", body, "sglang")["error"] == (
            "The request has its prompts in several members; send them in one."
        )


@pytest.mark.parametrize(
    "member",
    [
        lambda n: b'"n":' + b"1" * n * 64_000,
        lambda n: b'"truncation":"' + rb"\u0064" * n * 10_000 + b'"',
        lambda n: b'"tools":[' + b"{}," * n * 16_000 + b"{}]",
        lambda n: b'"prompt":[' + b"[" * n * 32_000 + b"]" * n * 32_000 + b"]",
        lambda n: b",".join([b'"vllm_xargs":{"bootstrap_":[]}'] * n * 60),
    ],
)
def test_hostile_values_cost_time_by_their_length(member):
    def plan(body):
        for route in ("responses", "completions"):
            pd_plan(route, body, "nixl")

    assert_linear(plan, lambda n: b'{"input":"hi",' + member(n) + b"}")


def test_behind_a_byte_order_mark_a_client_steers_nothing_either():
    """Row 18: such a body was rejected."""
    body = b'\xef\xbb\xbf{"kv_transfer_params":{"remote_host":"h"},"prompt":"hi","max_tokens":7}'
    made = pd_plan("completions", body, "nixl")
    assert (made["kind"], made["plain"]) == ("two_stages", b'{"prompt":"hi","max_tokens":7}')
