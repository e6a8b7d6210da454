"""The SDKs of OpenAI and Anthropic work with engines behind the router as with engines alone."""

import asyncio
import json
from collections.abc import Iterator

import anthropic
import openai
import pytest

from tests.engines.processes import CONTEXT, MODEL, Router

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

MESSAGES = [{"role": "user", "content": "Say how long a block is."}]
CHAT = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
PROMPT = {"model": MODEL, "prompt": "A router chooses", "max_tokens": 12, "temperature": 0}
RESPONSE = {"model": MODEL, "input": "Say how long a block is.", "max_output_tokens": 12, "temperature": 0}
MESSAGE = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "extra_body": {"temperature": 0}}
CITY = {"type": "string", "enum": ["Oslo", "Lima"]}
ARGUMENTS = {
    "type": "object",
    "properties": {"city": CITY},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "strict": True, "parameters": ARGUMENTS}}


@pytest.fixture(scope="module")
def router(fleet) -> Iterator[Router]:
    with fleet.router("cache_aware") as router:
        yield router


@pytest.fixture
def gpt(router) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
def claude(router) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=router.url, api_key="none", max_retries=0, timeout=120) as client:
        yield client


def test_a_chat_and_its_stream_say_the_same(gpt):
    whole = gpt.chat.completions.create(**CHAT)
    events = list(gpt.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
    pieces = [choice.delta.content or "" for event in events for choice in event.choices]
    assert whole.choices[0].message.content == "".join(pieces)
    assert whole.usage.completion_tokens == events[-1].usage.completion_tokens == 12
    assert whole.usage.prompt_tokens == events[-1].usage.prompt_tokens


def test_a_chat_has_as_many_choices_as_were_asked_for(gpt):
    assert [
        choice.index for choice in gpt.chat.completions.create(**CHAT | {"temperature": 1}, n=3).choices
    ] == [0, 1, 2]


def test_a_chat_calls_the_tool_that_it_must_call(gpt):
    choice = {"type": "function", "function": {"name": "weather"}}
    # With temperature 0 a model without training may repeat a blank for ever.
    asked = CHAT | {"tools": [TOOL], "tool_choice": choice, "max_tokens": 1000, "temperature": 1, "seed": 1}
    (made,) = gpt.chat.completions.create(**asked).choices[0].message.tool_calls
    assert made.function.name == "weather"
    assert json.loads(made.function.arguments)["city"] in CITY["enum"]


def test_a_completion_and_its_stream_say_the_same(gpt):
    whole = gpt.completions.create(**PROMPT)
    pieces = [event.choices[0].text for event in gpt.completions.create(**PROMPT, stream=True)]
    assert whole.choices[0].text == "".join(pieces)


def test_a_response_and_its_stream_say_the_same(gpt):
    whole = gpt.responses.create(**RESPONSE)
    with gpt.responses.stream(**RESPONSE) as stream:
        events = list(stream)
    assert events[-1].type == "response.completed"
    assert whole.output_text == events[-1].response.output_text
    assert whole.output_text == "".join(
        event.delta for event in events if event.type == "response.output_text.delta"
    )


def test_the_models_are_listed(gpt):
    assert [model.id for model in gpt.models.list()] == [MODEL]


def test_a_response_has_the_id_of_its_request(gpt):
    raw = gpt.chat.completions.with_raw_response.create(**CHAT, extra_headers={"x-request-id": "mine"})
    assert raw.headers["x-request-id"] == "mine"
    assert raw.parse().id == "chatcmpl-mine"


def test_many_chats_at_once_get_a_response_each(router):
    async def ask_all():
        async with openai.AsyncOpenAI(
            base_url=f"{router.url}/v1", api_key="none", max_retries=0, timeout=120
        ) as client:
            return await asyncio.gather(*(client.chat.completions.create(**CHAT) for _ in range(40)))

    made = asyncio.run(ask_all())
    assert len({one.id for one in made}) == 40
    assert {one.usage.completion_tokens for one in made} == {12}


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_is_not_found(gpt, claude, stream):
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        gpt.chat.completions.create(**CHAT | {"model": "unknown"}, stream=stream)
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        claude.messages.create(**MESSAGE | {"model": "unknown"}, stream=stream)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_is_a_bad_request(gpt, stream):
    long = [{"role": "user", "content": "word " * 2 * CONTEXT}]
    with pytest.raises(openai.BadRequestError, match=str(CONTEXT)):
        gpt.chat.completions.create(**CHAT | {"messages": long}, stream=stream)


def test_what_the_model_cannot_do_is_not_found(gpt):
    with pytest.raises(openai.NotFoundError):
        gpt.embeddings.create(model=MODEL, input="Hi")


def test_a_message_and_its_stream_say_the_same(claude):
    whole = claude.messages.create(**MESSAGE)
    with claude.messages.stream(**MESSAGE) as stream:
        pieces = list(stream.text_stream)
        last = stream.get_final_message()
    assert whole.content[0].text == "".join(pieces) == last.content[0].text
    assert whole.usage.output_tokens == last.usage.output_tokens == 12
    assert whole.stop_reason == last.stop_reason == "max_tokens"


def test_the_tokens_of_a_message_are_counted(claude, gpt):
    count = claude.messages.count_tokens(model=MODEL, messages=MESSAGES)
    assert count.input_tokens == gpt.chat.completions.create(**CHAT).usage.prompt_tokens
