"""cpp/disaggregation/merged_response.h: the responses of real engines, and shapes by hand."""

import json
from pathlib import Path

import pytest

from tests.rows import for_each_row
from vllm_router._core_testing import merge_responses, merge_usage

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


@for_each_row(
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
