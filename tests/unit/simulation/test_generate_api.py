"""cpp/simulation/generate_api.h: /inference/v1/generate, whole and streamed."""

import json

import pytest

from tests.unit.simulation.apis import events, parse, refuse
from vllm_router import _core_testing as testing

BODY = {"token_ids": [1, 2], "sampling_params": {"max_tokens": 3, "n": 2}}


@pytest.mark.parametrize("mode", ["tokens", "text"])
def test_a_stream_and_a_whole_response_say_the_same(mode):
    body = {**BODY, "output_mode": mode, "return_token_ids": True}
    whole = json.loads(testing.sim_answer(parse("generate", body), "1", 0))
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    *got, done = events(testing.sim_stream(parse("generate", streamed), "1", 0))
    assert done == "[DONE]"
    assert whole["request_id"] == "generate-tokens-1"
    assert {(event["request_id"], event["output_mode"]) for event in got} == {("generate-tokens-1", mode)}
    assert [event.get("prompt_token_ids") for event in got] == [[1, 2]] + [None] * (len(got) - 1)
    assert whole["prompt_token_ids"] == [1, 2]
    assert got.pop()["usage"] == whole["usage"]
    for index in range(2):
        said = [choice for event in got for choice in event["choices"] if choice["index"] == index]
        choice = whole["choices"][index]
        assert [number for one in said for number in one["token_ids"]] == choice["token_ids"]
        assert len(choice["token_ids"]) == 3
        assert (said[-1]["finish_reason"], choice["finish_reason"]) == ("length", "length")
        text = testing.text_of_tokens(choice["token_ids"]).decode()
        assert choice.get("text") == (text if mode == "text" else None)
        assert "".join(one.get("text", "") for one in said) == (text if mode == "text" else "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"sampling_params": {}}, "`token_ids`"),
        ({"token_ids": [1]}, "`sampling_params`"),
        ({"token_ids": [1], "sampling_params": {"max_tokens": 0}}, "`max_tokens`"),
        ({**BODY, "output_mode": "words"}, "`output_mode`"),
    ],
)
def test_what_is_no_request_is_refused(body, words):
    assert words in refuse("generate", body)["message"]
