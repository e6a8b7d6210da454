"""cpp/disaggregation/merged_response.h: the responses of real engines, and shapes by hand."""

import json
from pathlib import Path

import pytest

from tests.rows import for_each_row
from vllm_router._core_testing import merge_responses, merge_usage, wants_merge

# vLLM 0.32.0 with NIXL on CPUs; tests/data/README.md says what a line has.
RECORDED = Path(__file__).parents[2] / "data" / "pd" / "vllm_0.32_nixl_logprobs.jsonl"
CASES = {case["case"]: case for case in map(json.loads, RECORDED.read_text().splitlines())}
LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
CHAT = b'{"id":"d","prompt_logprobs" : null,"usage":{"a":1.0}}'


def recorded(case):
    return [json.loads(CASES[case][f"{who}_response"]) for who in ("prefill", "decode", "single")]


def merged(prefill, decode, route="completions"):
    result = merge_responses(route, as_bytes(prefill), as_bytes(decode))
    return None if result is None else json.loads(result)


def as_bytes(value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def choice_of(response):
    return response["choices"][0]


def without_prompt(response, prompt):
    """What decode says if its engine does not compute a prompt again."""
    choice = choice_of(response)
    choice["prompt_logprobs"] = None
    lists = choice["logprobs"]
    start = lists["text_offset"][prompt] if len(lists["tokens"]) > prompt else 0
    for name in LISTS:
        lists[name] = lists[name][prompt:]
    lists["text_offset"] = [offset - start for offset in lists["text_offset"]]
    return response


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_a_real_decode_worker_computed_again_stays_byte_for_byte(case):
    prefill, decode = (CASES[case][f"{who}_response"].encode() for who in ("prefill", "decode"))
    assert merge_responses("completions", prefill, decode) == decode
    assert choice_of(json.loads(decode)) == choice_of(json.loads(CASES[case]["single_response"]))


def test_a_prompt_that_only_prefill_has_gives_what_one_engine_says():
    prefill, decode, single = recorded("echo-logprobs")
    result = merged(prefill, without_prompt(decode, 15))
    assert choice_of(result) == choice_of(single)
    assert result["id"] == "cmpl-echo-logprobs", "the rest is decode's"


def test_a_prompt_with_damaged_figures_at_decode_gets_those_of_prefill():
    prefill, decode, single = recorded("echo-logprobs")
    choice_of(decode)["prompt_logprobs"][1:] = [{}] * 14
    choice_of(decode)["logprobs"]["token_logprobs"][1:15] = [-9999.0] * 14
    assert choice_of(merged(prefill, decode)) == choice_of(single)


def test_a_prompt_that_is_not_echoed_stays_out_of_the_lists():
    prefill, decode, single = recorded("logprobs")
    choice_of(prefill)["prompt_logprobs"] = [None, {"7": {"logprob": -1.5}}]
    result = choice_of(merged(prefill, decode))
    assert result["prompt_logprobs"] == [None, {"7": {"logprob": -1.5}}]
    assert result["logprobs"] == choice_of(single)["logprobs"]


def test_a_prompt_alone_is_echoed_without_anything_behind_it():
    prefill, decode, single = recorded("echo-logprobs")
    for name in LISTS:
        del choice_of(decode)["logprobs"][name][15:]
    assert merged(prefill, decode) == decode
    assert choice_of(merged(prefill, without_prompt(decode, 15)))["logprobs"] == {
        name: choice_of(single)["logprobs"][name][:15] for name in LISTS
    }


# Engines count characters, so the offset of what is behind the prompt is prefill's own.
def test_an_offset_is_of_characters():
    prefill = completion(["né", "é", "!"], [None, -1.0, -2.0], [0, 2, 3], [None, {}])
    decode = completion(["!", "?"], [-2.0, -3.0], [0, 1], None)
    result = choice_of(merged(prefill, decode))["logprobs"]
    assert result["tokens"] == ["né", "é", "!", "?"]
    assert result["text_offset"] == [0, 2, 3, 4]


def completion(tokens, token_logprobs, offsets, prompt_logprobs):
    lists = {
        "text_offset": offsets,
        "token_logprobs": token_logprobs,
        "tokens": tokens,
        "top_logprobs": [None for _ in tokens],
    }
    return {"choices": [{"index": 0, "logprobs": lists, "prompt_logprobs": prompt_logprobs}]}


def test_tokens_are_compared_by_their_meaning():
    prefill = json.dumps(completion(["é", "!"], [None, -2.0], [0, 1], [None])).encode()
    decode = completion(["é", "?"], [None, -3.0], [0, 1], None)
    written = json.dumps(decode, ensure_ascii=False).encode()
    assert choice_of(merged(prefill, written))["logprobs"]["tokens"] == ["é", "?"]
    choice_of(decode)["logprobs"]["tokens"][0] = "e"
    assert merged(prefill, decode) is None


@pytest.mark.parametrize(
    ("prefill", "decode", "result"),
    [
        (b'{"prompt_logprobs":[null, {"1":{"logprob":-1.50}}]}', CHAT, b'[null, {"1":{"logprob":-1.50}}]'),
        (b'{"prompt_logprobs":null}', CHAT, b"null"),
        (b"{}", CHAT, b"null"),
        (b'{"prompt_logprobs":[]}', CHAT, b"[]"),
    ],
)
def test_a_chat_gets_the_slice_of_prefill(prefill, decode, result):
    expected = CHAT.replace(b"null", result)
    assert merge_responses("chat", prefill, decode) == expected


def test_a_member_that_decode_has_not_comes_first():
    prefill = b'{"prompt_logprobs":[null]}'
    assert merge_responses("chat", prefill, b' {"id": 1}') == b' {"prompt_logprobs":[null],"id": 1}'
    assert merge_responses("chat", prefill, b"{}") == b'{"prompt_logprobs":[null]}'
    info = b'{"meta_info":{"input_token_logprobs":[[null,1,"a"]],"input_top_logprobs":[null]}}'
    assert json.loads(merge_responses("generate", info, b'{"meta_info":{}}')) == json.loads(info)
    assert json.loads(merge_responses("generate", info, b'{"meta_info": {"a":1}}'))["meta_info"] == {
        **json.loads(info)["meta_info"],
        "a": 1,
    }


@pytest.mark.parametrize(
    ("decode", "result"),
    [
        (b"[]", b'[[null,1,"a"],[-1.0,2,"b"]]'),
        (b"null", b'[[null,1,"a"],[-1.0,2,"b"]]'),
        (b'[[-2, 3,"c"]]', b'[[null,1,"a"],[-1.0,2,"b"],[-2, 3,"c"]]'),
        (b'[[null,1,"a"],[0,2,"b"]]', b'[[null,1,"a"],[-1.0,2,"b"]]'),
        (b'[[null,1,"a"],[0,4,"d"]]', b'[[null,1,"a"],[-1.0,2,"b"],[null,1,"a"],[0,4,"d"]]'),
    ],
)
def test_sglang_lists_the_prompt_first(decode, result):
    def response(value):
        return b'{"text":"x","meta_info":{"id":"r","input_token_logprobs": ' + value + b',"z":1e3}}'

    prefill = response(b'[[null,1,"a"],[-1.0,2,"b"]]')
    assert merge_responses("generate", prefill, response(decode)) == response(result)
    listed = b"[" + response(decode) + b" , " + response(b"[]") + b"]"
    both = b"[" + prefill + b"," + response(b"[]") + b"]"
    assert (
        merge_responses("generate", both, listed) == b"[" + response(result) + b" , " + response(b"[]") + b"]"
    )
    assert merge_responses("generate", prefill, listed) is None


def test_a_cut_response_leaves_decodes_as_it_is():
    case = CASES["echo-logprobs"]
    prefill, decode = case["prefill_response"].encode(), case["decode_response"].encode()
    for end in range(0, len(prefill), 7):
        assert merge_responses("completions", prefill[:end], decode) is None
    for end in range(0, len(decode), 7):
        assert merge_responses("completions", prefill, decode[:end]) is None


CHOICE = ("choices", 0)
LOGPROBS = (*CHOICE, "logprobs")


def put(response, path, value):
    *way, last = path
    for key in way:
        response = response[key]
    response[last] = value


@for_each_row(
    ("who", "path", "value"),
    [
        ("prefill", ["choices"], None),
        ("decode", ["choices"], None),
        ("prefill", ["choices"], []),
        ("prefill", CHOICE, 7),
        ("prefill", [*CHOICE, "index"], 1),
        ("prefill", [*CHOICE, "prompt_logprobs"], 7),
        ("prefill", [*CHOICE, "prompt_logprobs"], [None]),
        ("prefill", LOGPROBS, 7),
        ("decode", LOGPROBS, None),
        ("prefill", [*LOGPROBS, "tokens"], None),
        ("decode", [*LOGPROBS, "top_logprobs"], None),
        ("decode", [*LOGPROBS, "top_logprobs"], []),
        ("prefill", [*LOGPROBS, "token_logprobs", 0], -1.0),
        ("prefill", [*LOGPROBS, "text_offset", -1], -1),
        ("prefill", [*LOGPROBS, "text_offset", -1], 2**53 + 1),
        ("decode", [*LOGPROBS, "text_offset", 0], 1),
        ("decode", [*LOGPROBS, "text_offset", 1], 1.5),
    ],
)
def test_an_unexpected_shape_leaves_decodes_as_it_is(who, path, value):
    prefill, decode, _ = recorded("echo-logprobs")
    without_prompt(decode, 15)
    assert merged(prefill, decode) is not None
    put(prefill if who == "prefill" else decode, path, value)
    assert merged(prefill, decode) is None


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        (b'{"prompt_logprobs":[1],"prompt_logprobs":[2]}', CHAT),
        (b'{"prompt_logprobs":[1]}', b'{"prompt_logprobs":null,"prompt_logprobs":null}'),
        (b'{"prompt_logprobs":{}}', CHAT),
        (b'{"prompt_logprobs":[tru]}', CHAT),
        (b'{"prompt_logprobs":[NaN]}', CHAT),
        (b'{"prompt_logprobs":["\xff"]}', CHAT),
        (b'{"prompt_logprobs":[1]}', b'{"a":1,}'),
        (b'{"prompt_logprobs":[1]}', b"data: {}\n\n"),
        (b"", CHAT),
        (b"{}", b""),
        (b"[]", CHAT),
    ],
)
def test_what_is_not_one_object_leaves_decodes_as_it_is(prefill, decode):
    assert merge_responses("chat", prefill, decode) is None


def test_other_routes_have_nothing_to_merge():
    for route in ("responses", "messages", "inference_generate", "batch_chat", "extra", "other"):
        assert merge_responses(route, b'{"prompt_logprobs":[1]}', CHAT) == CHAT


@for_each_row(
    ("route", "request_body", "wanted"),
    [
        ("chat", b'{"logprobs":true}', False),
        ("chat", b'{"logprobs":false}', False),
        ("chat", b'{"logprobs":null,"prompt_logprobs":0}', True),
        ("completions", b'{"logprobs":0,"echo":true}', True),
        ("completions", b'{"echo":true}', False),
        ("completions", b'{"echo":1,"logprobs":1}', False),
        ("completions", b'{"echo":true,"logprobs":1,"stream":true}', False),
        ("completions", b'{"echo":true,"logprobs":1,"stream":false}', True),
        ("completions", b'{"lo\\u0067probs":2,"echo":true}', True),
        ("completions", b'{"echo":true,"logprobs":2,"logprobs":null}', True),
        ("completions", b'{"return_logprob":true}', False),
        ("completions", b"{}", False),
        ("generate", b'{"return_logprob":true}', True),
        ("generate", b'{"return_logprob":[true,false]}', True),
        ("generate", b'{"return_logprob":true,"stream":true}', False),
        ("generate", b'{"logprobs":1}', False),
        ("responses", b'{"logprobs":1}', False),
        ("messages", b'{"logprobs":1}', False),
        ("chat", b"not JSON", False),
    ],
)
def test_which_requests_want_it(route, request_body, wanted):
    assert wants_merge(route, request_body) is wanted


def usage(prompt, total, generated, details):
    return json.dumps(
        {
            "id": 1,
            "usage": {
                "prompt_tokens": prompt,
                "total_tokens": total,
                "completion_tokens": generated,
                "prompt_tokens_details": details,
            },
        }
    ).encode()


def test_the_usage_of_both_has_the_prompt_of_prefill():
    prefill = usage(20, 21, 1, {"cached_tokens": 16})
    assert merge_usage(prefill, usage(1, 5, 4, {"cached_tokens": 3})) == usage(
        20, 24, 4, {"cached_tokens": 3}
    )
    for details in (None, {}, {"cached_tokens": -1}, {"cached_tokens": None}):
        assert json.loads(merge_usage(prefill, usage(20, 24, 4, details))) == json.loads(
            usage(20, 24, 4, {"cached_tokens": 16})
        )
    assert merge_usage(usage(20, 21, 1, None), usage(1, 5, 4, None)) == usage(20, 24, 4, None)


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_usage_of_real_engines_stays(case):
    prefill, decode = (CASES[case][f"{who}_response"].encode() for who in ("prefill", "decode"))
    assert merge_usage(prefill, decode) == decode


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        (b"{}", usage(1, 2, 1, None)),
        (b'{"usage":null}', usage(1, 2, 1, None)),
        (usage(None, 2, 1, None), usage(1, 2, 1, None)),
        (usage(-1, 2, 1, None), usage(1, 2, 1, None)),
        (usage(1, 2, 1, None), usage(1, 2, None, None)),
        (usage(1, 2, 1, None), b'{"usage":[]}'),
        (usage(1, 2, 1, None), b""),
    ],
)
def test_an_unexpected_usage_leaves_decodes_as_it_is(prefill, decode):
    assert merge_usage(prefill, decode) is None


def test_without_usage_there_is_none():
    assert merge_usage(usage(1, 2, 1, None), b'{"usage": null}') == b'{"usage": null}'
