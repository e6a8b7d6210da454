"""cpp/simulation/openai_api.h: what is no chat, errors, and counts of tokens."""

import base64
import json
import struct

import pytest

from tests.unit.simulation.apis import chat, parse
from vllm_router import _core_testing as testing


def test_an_error_on_the_anthropic_path_has_its_shape():
    with pytest.raises(ValueError, match="error") as refused:
        parse("messages", {"model": "x", "messages": []})
    assert json.loads(str(refused.value))["type"] == "error"
    assert json.loads(str(refused.value))["error"]["type"] == "not_found_error"


def test_embeddings_say_the_same_in_floats_and_in_base64():
    body = {"input": ["a", "b"], "dimensions": 5}
    floats = json.loads(testing.sim_answer(parse("embeddings", body), "1", 0))["data"]
    coded = json.loads(
        testing.sim_answer(parse("embeddings", {**body, "encoding_format": "base64"}), "1", 0)
    )["data"]
    for plain, packed in zip(floats, coded, strict=True):
        numbers = struct.unpack("<5f", base64.b64decode(packed["embedding"], validate=True))
        assert plain["embedding"] == pytest.approx(numbers)
        assert all(-1 <= number < 1 for number in numbers)
    assert floats[0]["embedding"] != floats[1]["embedding"]


def test_tokenize_and_detokenize_are_each_others_inverse():
    answer = json.loads(testing.sim_answer(parse("tokenize", {"prompt": 'Hello "world"'}), "1", 0))
    assert (answer["count"], answer["max_model_len"], answer["token_strs"]) == (4, 131072, None)
    back = json.loads(testing.sim_answer(parse("detokenize", {"tokens": answer["tokens"]}), "1", 0))
    assert back == {"prompt": 'Hello "world"'}


def test_tokenize_sees_a_chat_as_the_chat_api_does():
    assert parse("tokenize", chat("Hello")).prompts == parse("chat", chat("Hello")).prompts


@pytest.mark.parametrize(("api", "counting"), [("messages", "count_tokens"), ("responses", "input_tokens")])
def test_a_count_is_what_the_same_request_takes(api, counting):
    body = {**chat("Hello", tools=[{"name": "f"}]), "input": "Hello", "system": "S", "instructions": "I"}
    counted = json.loads(testing.sim_answer(parse(counting, body), "1", 0))
    assert counted["input_tokens"] == len(parse(api, body).prompts[0])


@pytest.mark.parametrize("api", ["messages", "responses"])
def test_what_is_rendered_is_what_the_same_request_computes(api):
    body = {**chat("Hello", tools=[{"name": "f"}]), "input": "Hello", "system": "S", "instructions": "I"}
    rendered = json.loads(testing.sim_answer(parse(f"render_{api}", body), "7", 0))
    assert (rendered["request_id"], rendered["token_ids"]) == ("7", parse(api, body).prompts[0])


def test_an_error_of_a_count_has_the_form_of_its_api():
    with pytest.raises(ValueError, match="error") as refused:
        parse("count_tokens", {"messages": []})
    assert json.loads(str(refused.value))["error"]["type"] == "invalid_request_error"
