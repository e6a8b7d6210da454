"""cpp/simulation/responses_api.h: items of text and of function calls, whole and streamed."""

import json

from tests.unit.simulation.apis import events, parse, scripted, text_of
from vllm_router import _core_testing as testing


def test_a_responses_stream_counts_its_events_and_ends_with_the_whole():
    request = parse("responses", {"input": "Hello", "instructions": "Be brief.", "max_output_tokens": 2})
    assert text_of(request).startswith("<|system|>\nBe brief.\n<|user|>\nHello\n")
    got = events(testing.sim_stream(request, "1", 0))
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    text = "".join(event["delta"] for event in got if event["type"] == "response.output_text.delta")
    assert got[-1]["type"] == "response.completed"
    assert got[-1]["response"]["output"][0]["content"][0]["text"] == text
    assert got[-1]["response"] == json.loads(testing.sim_answer(request, "1", 0))


def test_a_text_item_opens_and_closes_around_its_deltas():
    got = events(testing.sim_stream(parse("responses", {"input": "Hi", "max_output_tokens": 2}), "1", 0))
    assert [event["type"].removeprefix("response.") for event in got] == [
        "created",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert {event["item_id"] for event in got if "item_id" in event} == {"msg_resp_1"}


def test_function_calls_are_items_behind_the_text():
    script = scripted("Look.", ("exec_command", {"cmd": 'echo "ä\n"'}), "f")
    request = parse("responses", {"input": "Hi", "tools": [{}]}, script=script)
    whole = json.loads(testing.sim_answer(request, "1", 8))
    text, first, second = whole["output"]
    assert text["content"][0]["text"] == "Look."
    assert (first["type"], first["name"]) == ("function_call", "exec_command")
    assert json.loads(first["arguments"]) == {"cmd": 'echo "ä\n"'}
    assert (second["name"], second["arguments"]) == ("f", "{}")
    assert whole["usage"]["input_tokens_details"]["cached_tokens"] == 8

    got = events(testing.sim_stream(request, "1", 8))
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    done = [event["item"] for event in got if event["type"] == "response.output_item.done"]
    assert done == whole["output"]
    added = [event["item"] for event in got if event["type"] == "response.output_item.added"]
    assert [item["id"] for item in added] == [item["id"] for item in done]
    assert [item["status"] for item in added] == ["in_progress"] * 3
    for index, item in enumerate(done[1:], 1):
        deltas = [event["delta"] for event in got if event.get("item_id") == item["id"] and "delta" in event]
        assert "".join(deltas) == item["arguments"]
        assert {event["output_index"] for event in got if event.get("item_id") == item["id"]} == {index}
    assert got[-1]["response"] == whole


def test_a_response_that_generates_nothing_has_no_items():
    request = parse("responses", {"input": "Hi", "generate": False, "tools": [{}]}, script=scripted("x", "f"))
    got = events(testing.sim_stream(request, "1", 0))
    assert [event["type"] for event in got] == ["response.created", "response.completed"]
    assert got[-1]["response"]["output"] == []
