"""cpp/simulation/messages_api.h: Anthropic's content blocks, whole and streamed."""

import json

from tests.unit.simulation.apis import chat, events, parse, scripted
from vllm_router import _core_testing as testing


def test_an_anthropic_stream_opens_and_closes_its_block():
    request = parse(
        "messages", {"messages": [{"role": "user", "content": "Hi"}], "system": "S", "max_tokens": 2}
    )
    got = events(testing.sim_stream(request, "1", 0))
    assert [event["type"] for event in got] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    whole = json.loads(testing.sim_answer(request, "1", 0))
    assert whole["content"][0]["text"] == "".join(event["delta"]["text"] for event in got[2:4])
    assert got[5]["delta"]["stop_reason"] == whole["stop_reason"] == "max_tokens"


def test_tool_use_has_blocks_of_its_own_and_a_reason():
    request = parse(
        "messages", chat("Hi", tools=[{}]), script=scripted("Look.", ("Bash", {"a": ["ä", 1]}), "Read")
    )
    whole = json.loads(testing.sim_answer(request, "1", 8))
    assert whole["stop_reason"] == "tool_use"
    assert [block["type"] for block in whole["content"]] == ["text", "tool_use", "tool_use"]
    assert (whole["content"][1]["name"], whole["content"][1]["input"]) == ("Bash", {"a": ["ä", 1]})
    assert (whole["content"][2]["name"], whole["content"][2]["input"]) == ("Read", {})
    assert whole["usage"]["cache_read_input_tokens"] == 8

    blocks = []
    got = events(testing.sim_stream(request, "1", 8))
    for event in got:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append((event["content_block"], []))
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[event["index"]][1].append(delta.get("text") or delta["partial_json"])
        elif event["type"] == "content_block_stop":
            assert event["index"] == len(blocks) - 1
    streamed = [
        {**block, "text": "".join(pieces)}
        if block["type"] == "text"
        else {**block, "input": json.loads("".join(pieces))}
        for block, pieces in blocks
    ]
    assert streamed == whole["content"]
    assert got[-2]["delta"]["stop_reason"] == "tool_use"
    assert got[-2]["usage"] == whole["usage"]
