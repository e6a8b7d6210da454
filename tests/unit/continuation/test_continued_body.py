"""cpp/continuation/continued_body.h: the request for the rest of a stream."""

import json

import pytest

from vllm_router import _core_testing as testing

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PROMPT, OUTPUT = [1, 2], [7, 8, 9]


def rest(path, **body):
    made = testing.continued_body(path, json.dumps(body), PROMPT, OUTPUT)
    return made if made is None else json.loads(made)


def test_all_ids_so_far_are_the_prompt():
    sent = {
        "model": "m",
        "stream": True,
        "logit_bias": {"1": 2},
        "truncate_prompt_tokens": 1,
        "max_tokens": 9,
    }
    kept = {"model": "m", "stream": True, "logit_bias": {"1": 2}, "max_tokens": 6, "return_token_ids": True}
    assert rest(COMPLETIONS, prompt="a", **sent) == kept | {"prompt": [1, 2, 7, 8, 9]}
    messages = [{"role": "user", "content": "a"}]
    assert rest(CHAT, messages=messages, prompt_logprobs=1, **sent) == kept | {
        "messages": messages,
        "kv_transfer_params": {"prompt_token_ids": [1, 2, 7, 8, 9]},
    }


@pytest.mark.parametrize(
    ("path", "limits", "left"),
    [
        (CHAT, {}, {}),
        (CHAT, {"max_tokens": None}, {"max_tokens": None}),
        (CHAT, {"max_completion_tokens": 4, "max_tokens": 8}, {"max_completion_tokens": 1, "max_tokens": 5}),
        (CHAT, {"max_tokens": 3}, None),
        (CHAT, {"max_tokens": 2}, None),
        (COMPLETIONS, {}, {"max_tokens": 13}),
        (COMPLETIONS, {"max_tokens": None}, {"max_tokens": 13}),
        (COMPLETIONS, {"max_tokens": 4, "min_tokens": 9}, {"max_tokens": 1, "min_tokens": 6}),
        (COMPLETIONS, {"max_tokens": 4, "min_tokens": 2}, {"max_tokens": 1, "min_tokens": 0}),
    ],
)
def test_limits_are_less_by_what_was_generated(path, limits, left):
    made = rest(path, **limits)
    names = ("max_tokens", "max_completion_tokens", "min_tokens")
    assert (made if made is None else {name: made[name] for name in names if name in made}) == left


@pytest.mark.parametrize("limit", [-1, 1.5, "9", True, [9], 2**64])
def test_a_limit_that_is_no_number_of_tokens_is_not_guessed(limit):
    with pytest.raises(ValueError, match="no number"):
        rest(CHAT, max_tokens=limit)
