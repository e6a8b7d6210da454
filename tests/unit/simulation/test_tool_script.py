"""cpp/simulation/tool_script.h: turns of a script, what is no script, and loops of real clients."""

import itertools
import json
from collections.abc import Iterator

import anthropic
import openai
import pytest

from tests.unit.simulation.wire import FAST
from vllm_router import _core_testing as testing
from vllm_router.testing import SimulatedWorker


@pytest.fixture
def script():
    return testing.ToolScript(
        """[{"text": "Look.", "calls": [{"name": "bash", "arguments": {"command": "ls"}}, {"name": "f"}]},
            {"text": "Done."}]"""
    )


def test_a_turn_is_a_text_and_calls_with_their_arguments(script):
    text, calls, tokens = script.turn(0)
    assert (text, calls) == ("Look.", [("bash", '{"command":"ls"}'), ("f", "{}")])
    # "Look" ".", a call with 16 bytes of arguments, another with 2.
    assert tokens == 2 + (1 + 4) + (1 + 1)


def test_the_last_turn_repeats(script):
    assert [script.turn(number)[0] for number in (1, 2, 99)] == ["Done."] * 3


@pytest.mark.parametrize(
    ("json", "reason"),
    [
        ("x", "is no JSON"),
        ("{}", 'is "{}"; it must be a JSON list'),
        ("[]", "of one turn or more"),
        ("[1]", "turn 1 is no object"),
        ('[{"text": "x"}, {}]', "turn 2 says nothing"),
        ('[{"text": 1}]', 'turn 1 has a "text" that is none'),
        ('[{"say": "x"}]', 'turn 1 has the member "say", which means nothing'),
        ('[{"calls": {}}]', 'turn 1 has "calls" that are no list'),
        ('[{"calls": [{}]}]', 'turn 1 has a call without a "name"'),
        ('[{"calls": [{"name": "f", "arguments": "{}"}]}]', 'call of "f" whose "arguments" are no object'),
    ],
)
def test_what_is_no_script_is_refused_with_the_reason_and_the_form(json, reason):
    with pytest.raises(ValueError, match="tool_script") as refused:
        testing.ToolScript(json)
    assert reason in str(refused.value)
    assert '"text"' in str(refused.value)


# Loops of real clients: each request goes to another worker than the one before.

TASK = [
    {"text": "I look.", "calls": [{"name": "bash", "arguments": {"command": "ls"}}]},
    {"calls": [{"name": "read", "arguments": {"path": "ä"}}, {"name": "read", "arguments": {"path": "b"}}]},
    {"text": "Done."},
]
SCHEMA = {"type": "object", "properties": {}}
EXPECTED = [("bash", {"command": "ls"}), ("read", {"path": "ä"}), ("read", {"path": "b"}), "Done."]


@pytest.fixture(scope="module")
def urls() -> Iterator[list[str]]:
    script = json.dumps(TASK)
    with (
        SimulatedWorker(**FAST, tool_script=script) as one,
        SimulatedWorker(**FAST, tool_script=script) as two,
    ):
        yield [one.url, two.url]


def clients_of(urls, kind, base=""):
    return itertools.cycle([kind(base_url=url + base, api_key="x", max_retries=0) for url in urls])


def test_chats_work_through_the_script(urls):
    clients, done = clients_of(urls, openai.OpenAI, "/v1"), []
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Do it."}]
    tools = [{"type": "function", "function": {"name": name}} for name in ("bash", "read")]
    for client, streamed in zip(clients, (True, False, True), strict=False):
        request = {"model": "simulated-model", "messages": messages, "tools": tools}
        if streamed:
            with client.chat.completions.stream(**request) as stream:
                choice = stream.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**request).choices[0]
        messages.append(choice.message.to_dict())
        for call in choice.message.tool_calls or []:
            assert choice.finish_reason == "tool_calls"
            done.append((call.function.name, json.loads(call.function.arguments)))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "R"})
    assert [*done, choice.message.content] == EXPECTED
    assert choice.finish_reason == "stop"


def test_messages_work_through_the_script(urls):
    clients, done = clients_of(urls, anthropic.Anthropic), []
    messages = [{"role": "user", "content": "Do it."}]
    tools = [{"name": name, "input_schema": SCHEMA} for name in ("bash", "read")]
    for client, streamed in zip(clients, (True, False, True), strict=False):
        request = {"model": "simulated-model", "max_tokens": 999, "messages": messages, "tools": tools}
        if streamed:
            with client.messages.stream(**request) as stream:
                message = stream.get_final_message()
        else:
            message = client.messages.create(**request)
        messages.append({"role": "assistant", "content": message.content})
        calls = [block for block in message.content if block.type == "tool_use"]
        assert message.stop_reason == ("tool_use" if calls else "end_turn")
        done += [(call.name, call.input) for call in calls]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "R"} for call in calls]
        messages.append({"role": "user", "content": results})
    assert [*done, message.content[0].text] == EXPECTED


def test_responses_work_through_the_script(urls):
    clients, done = clients_of(urls, openai.OpenAI, "/v1"), []
    items = [{"role": "user", "content": "Do it."}]
    tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("bash", "read")]
    for client, streamed in zip(clients, (True, False, True), strict=False):
        request = {"model": "simulated-model", "input": items, "tools": tools}
        if streamed:
            with client.responses.stream(**request) as stream:
                response = stream.get_final_response()
        else:
            response = client.responses.create(**request)
        items += [item.to_dict() for item in response.output]
        for call in (item for item in response.output if item.type == "function_call"):
            done.append((call.name, json.loads(call.arguments)))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": "R"})
    assert [*done, response.output_text] == EXPECTED
