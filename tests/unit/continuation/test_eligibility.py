"""cpp/continuation/eligibility.h: which streams can be continued, by which method, and why not."""

import json
import re
from pathlib import Path

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

PAGE = (Path(__file__).parents[3] / "docs" / "explanation" / "continued_streams.md").read_text()

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
RESPONSES, VLLM, SGLANG = "/v1/responses", "/inference/v1/generate", "/generate"
GREEDY = {"stream": True, "temperature": 0}
SAMPLED = {"stream": True}
USER = {"messages": [{"role": "user", "content": "Hello!"}]}
TOOL = {"type": "function", "function": {"name": "f"}}


def check(path=CHAT, phase="text", **body):
    """(rerun, tokens, parsed_tokens)"""
    reasons = testing.check_eligibility(path, json.dumps(body))
    return tuple(reasons[method][phase] for method in testing.continue_methods())


def tokens(path=CHAT, phase="text", **body):
    return check(path, phase, **SAMPLED, **body)[1]


def test_names():
    assert testing.continue_methods() == ["rerun", "tokens", "parsed_tokens"]
    reasons = testing.continue_reasons()
    assert len(set(reasons)) == len(reasons)
    assert all(reasons)


def test_the_page_has_a_row_for_each_reason():
    table = PAGE.split("| reason | of |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", table, re.MULTILINE)
    assert [name for name, _ in rows] == testing.continue_reasons()[1:]
    assert {method for _, of in rows for method in of.split(", ")} == {*testing.continue_methods(), "all"}


def test_a_greedy_chat_runs_again_or_goes_on_by_tokens():
    assert check(**GREEDY, **USER) == ("none", "none", "no_tool_call")


def test_a_sampled_chat_goes_on_by_tokens_alone():
    assert check(**SAMPLED, **USER) == ("sampled", "none", "no_tool_call")


@for_each_row(
    ("path", "body", "reason"),
    [
        ("/v1/embeddings", GREEDY, "route"),
        ("/v1/chat/completions/", GREEDY, "route"),
        ("", GREEDY, "route"),
        (CHAT, {"temperature": 0}, "not_streamed"),
        (CHAT, {"temperature": 0, "stream": False}, "not_streamed"),
        (CHAT, {"temperature": 0, "stream": 1}, "not_streamed"),
        (CHAT, {**GREEDY, **{f"x{number}": 1 for number in range(256)}}, "not_json"),
        (RESPONSES, GREEDY, "state"),
        (RESPONSES, {**GREEDY, "store": True}, "state"),
        (RESPONSES, {**GREEDY, "store": False, "background": True}, "state"),
        (RESPONSES, {**GREEDY, "store": False, "previous_response_id": "r"}, "state"),
        (CHAT, {**GREEDY, "kv_transfer_params": {"do_remote_decode": True}}, "state"),
        (SGLANG, {**GREEDY, "session_params": {"id": "1"}}, "state"),
        (COMPLETIONS, {**GREEDY, "use_beam_search": True}, "beam_search"),
        (VLLM, {"stream": True, "sampling_params": [{}]}, "not_json"),
    ],
)
def test_what_no_method_can_do(path, body, reason):
    assert check(path, **body) == (reason,) * 3
    assert not testing.may_continue(path, json.dumps(body))


@for_each_row(
    ("body", "reason"),
    [
        ("", "not_json"),
        ("[]", "not_json"),
        ('{"stream":true', "not_json"),
        ('{"stream":true,"stream":true}', "odd_names"),
        ('{"str\\u0065am":true}', "odd_names"),
    ],
)
def test_a_body_that_cannot_be_read(body, reason):
    assert testing.check_eligibility(CHAT, body)["rerun"]["text"] == reason


def test_odd_names_among_sampling_parameters():
    body = '{"stream":true,"sampling_params":{"n":1,"n":2}}'
    assert testing.check_eligibility(VLLM, body)["tokens"]["text"] == "odd_names"


@for_each_row(
    ("temperature", "reason"),
    [("0", "none"), ("0.0", "none"), ("0e9", "none"), ("1e-9", "sampled"), ("null", "sampled")],
)
def test_a_temperature_of_zero_however_it_is_spelled(temperature, reason):
    body = f'{{"stream":true,"temperature":{temperature}}}'
    assert testing.check_eligibility(CHAT, body)["rerun"]["text"] == reason


def test_a_seed_makes_a_run_repeatable_and_tokens_useless():
    assert check(stream=True, temperature=0.7, seed=7) == ("none", "seed", "seed")
    assert check(stream=True, seed="5") == ("none", "seed", "seed")
    assert check(stream=True, seed=0) == ("none", "seed", "seed")
    assert check(**GREEDY, seed=7) == ("none", "none", "no_tool_call")
    assert check(stream=True, seed=None)[:2] == ("sampled", "none")


@for_each_row(
    ("path", "more", "expected"),
    [
        (COMPLETIONS, {}, ("none", "none", "no_tool_call")),
        (MESSAGES, {}, ("format", "no_token_ids", "no_token_ids")),
        (RESPONSES, {"store": False}, ("format", "no_token_ids", "no_token_ids")),
        (VLLM, {"sampling_params": {"temperature": 0}}, ("format", "none", "no_tool_call")),
        (SGLANG, {"sampling_params": {"temperature": 0}}, ("format", "none", "no_tool_call")),
        (SGLANG, {}, ("sampled", "none", "no_tool_call")),
        (SGLANG, {"sampling_params": None}, ("sampled", "none", "no_tool_call")),
    ],
)
def test_by_api(path, more, expected):
    assert check(path, **GREEDY, **more) == expected


@for_each_row(
    ("path", "body"),
    [
        (CHAT, {"n": 2}),
        (COMPLETIONS, {"best_of": 2}),
        (COMPLETIONS, {"prompt": ["a", "b"]}),
        (COMPLETIONS, {"prompt": [[1, 2], [3]]}),
        (SGLANG, {"text": ["a", "b"]}),
        (SGLANG, {"input_ids": [[1], [2]]}),
        (SGLANG, {"sampling_params": {"n": 2}}),
    ],
)
def test_several_choices(path, body):
    assert tokens(path, **body) == "several_choices"


@for_each_row(
    ("path", "body"),
    [
        (CHAT, {"n": 1}),
        (COMPLETIONS, {"prompt": "a", "n": None}),
        (COMPLETIONS, {"prompt": ["a"]}),
        (COMPLETIONS, {"prompt": [1, 2, 3]}),
        (COMPLETIONS, {"prompt": [[1, 2, 3]]}),
        (COMPLETIONS, {"prompt": []}),
        (SGLANG, {"input_ids": [1, 2]}),
    ],
)
def test_one_choice(path, body):
    assert tokens(path, **body) == "none"


@for_each_row(
    ("body", "reason"),
    [
        ({"presence_penalty": 0.5}, "output_history"),
        ({"frequency_penalty": -1}, "output_history"),
        ({"presence_penalty": 0, "frequency_penalty": 0.0}, "none"),
        ({"repetition_penalty": 1.2}, "none"),
        ({"bad_words": ["x"]}, "output_history"),
        ({"bad_words": []}, "none"),
        ({"vllm_xargs": {"a": 1}}, "output_history"),
        ({"logits_processors": ["x"]}, "output_history"),
        ({"include_reasoning": False}, "hidden_reasoning"),
        ({"include_reasoning": "false"}, "hidden_reasoning"),
        ({"include_reasoning": True}, "none"),
        ({"stop": ["x"]}, "stop"),
        ({"stop": []}, "none"),
        ({"echo": True}, "echo"),
        ({"echo": False}, "none"),
        ({"logprobs": True, "max_tokens": 7, "logit_bias": {"1": 2}}, "none"),
    ],
)
def test_what_sampling_depends_on(body, reason):
    assert tokens(**body) == reason
    assert check(**GREEDY, **body)[0] == "none"


@for_each_row(
    ("content", "reason"),
    [
        ("text", "none"),
        (None, "none"),
        ([{"type": "text", "text": "a"}], "none"),
        ([{"type": "image_url", "image_url": {"url": "data:x"}}], "media"),
        ([{"type": "text", "text": "a"}, {"type": "input_audio"}], "media"),
        ([{"text": "a"}], "media"),
        ([7], "media"),
        (7, "media"),
    ],
)
def test_media_of_a_message(content, reason):
    assert tokens(messages=[{"role": "user", "content": content}]) == reason


@for_each_row(
    ("path", "body"),
    [
        (SGLANG, {"image_data": "x"}),
        (VLLM, {"features": {"a": 1}}),
        (CHAT, {"audio": {"voice": "x"}}),
        (CHAT, {"messages": 7}),
    ],
)
def test_other_media(path, body):
    assert tokens(path, **body) == "media"


@for_each_row(
    ("path", "body"),
    [
        (CHAT, {"response_format": {"type": "json_object"}}),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {}}}),
        (CHAT, {"response_format": 7}),
        (CHAT, {"structured_outputs": {"regex": "a"}}),
        (COMPLETIONS, {"guided_json": {"type": "object"}}),
        (CHAT, {"tools": [TOOL], "tool_choice": "required"}),
        (CHAT, {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
        (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}),
        (CHAT, {"tools": [{"type": "function", "strict": True}]}),
        (CHAT, {"tools": 7}),
        (VLLM, {"sampling_params": {"structured_outputs": {"json": {}}}}),
        (SGLANG, {"sampling_params": {"ebnf": "root"}}),
    ],
)
def test_a_grammar_goes_on_in_reasoning_alone(path, body):
    assert tokens(path, **body) == "grammar"
    assert tokens(path, "reasoning", **body) == "none"
    assert check(path, "tool_call", **SAMPLED, **body)[1:] == ("grammar", "grammar")
    assert testing.may_continue(path, json.dumps({**SAMPLED, **body}))


def test_no_grammar():
    assert tokens(response_format={"type": "text"}) == "none"
    assert tokens(structured_outputs=None, guided_json=None) == "none"
    assert tokens(tools=[TOOL], tool_choice="auto") == "none"
    assert (
        tokens(tools=[{"type": "function", "function": {"name": "f", "strict": True}}], tool_choice="none")
        == "none"
    )


def test_a_tool_call_needs_parsed_tokens():
    assert check(phase="text", **SAMPLED, tools=[TOOL]) == ("sampled", "none", "no_tool_call")
    assert check(phase="tool_call", **SAMPLED, tools=[TOOL]) == ("sampled", "tool_call", "none")
    assert check(phase="tool_call", **GREEDY, tools=[TOOL]) == ("none", "tool_call", "none")
    assert check(phase="tool_call", **SAMPLED) == ("sampled", "tool_call", "no_tool_call")
    assert check(phase="tool_call", **SAMPLED, tools=[TOOL], tool_choice="none")[2] == "no_tool_call"
