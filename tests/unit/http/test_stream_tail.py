"""cpp/http/stream_tail.h: what the end of an answer says, whole or cut, in pieces of every size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

TAIL = 2048
USAGE = {
    "prompt_tokens": 100,
    "total_tokens": 142,
    "completion_tokens": 42,
    "prompt_tokens_details": {"cached_tokens": 64},
}
NOTHING = {
    "done": False,
    "error": False,
    "server_error": False,
    "prompt_tokens": None,
    "completion_tokens": None,
    "cached_tokens": None,
}
COUNTED = {**NOTHING, "prompt_tokens": 100, "completion_tokens": 42, "cached_tokens": 64}


def summarize(body, size=None):
    data = body.encode() if isinstance(body, str) else body
    pieces = [data] if size is None else [data[i : i + size] for i in range(0, len(data), size)]
    return testing.summarize_tail(pieces)


def events(*data, end="\n"):
    return "".join(f"data: {item if isinstance(item, str) else json.dumps(item)}{end}{end}" for item in data)


def chunk(**members):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [], **members}


def chat_answer(content, **members):
    message = {"role": "assistant", "content": content}
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "message": message}], "usage": USAGE, **members}


@for_each_row("size", [None, 1, 2, 7, 100, 999, 2047, 2048, 2049])
@for_each_row("count", [0, 1, 50])
def test_a_stream_ends_with_usage_and_done(size, count):
    words = [chunk(choices=[{"delta": {"content": " word"}}], usage=None)] * count
    body = events(*words, chunk(usage=USAGE), "[DONE]")
    assert summarize(body, size) == {**COUNTED, "done": True}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_may_be_either(end):
    assert summarize(events(chunk(usage=USAGE), "[DONE]", end=end)) == {**COUNTED, "done": True}


def test_a_stream_without_usage_is_just_done():
    assert summarize(events(chunk(usage=None), chunk(), "[DONE]")) == {**NOTHING, "done": True}


def test_a_stream_without_done_is_not_done():
    assert summarize(events(chunk(usage=USAGE))) == COUNTED
    assert summarize(events(chunk(), "[DONE]", chunk()))["done"] is False


def test_the_last_event_counts_even_if_its_empty_line_is_missing():
    assert summarize(events(chunk(usage=USAGE)) + "data: [DONE]") == {**COUNTED, "done": True}
    assert summarize(events(chunk(usage=USAGE)) + "data:[DONE]\n") == {**COUNTED, "done": True}


def test_comments_and_other_fields_are_passed_over():
    body = (
        ": ping\n\n"
        + events(chunk(usage=USAGE))
        + "event: end\nid: 7\n\n: ping\n\n"
        + events("[DONE]")
        + ": bye\n\n"
    )
    assert summarize(body) == {**COUNTED, "done": True}


def test_data_lines_of_one_event_belong_together():
    body = 'data: {"choices": [],\ndata: "usage": {"prompt_tokens": 100,\ndata: "completion_tokens": 42,\n'
    body += 'data: "prompt_tokens_details": {"cached_tokens": 64}}}\n\ndata: [DONE]\n\n'
    assert summarize(body) == {**COUNTED, "done": True}


def test_with_usage_in_every_event_the_last_one_counts():
    early = {"prompt_tokens": 100, "completion_tokens": 1}
    assert summarize(events(chunk(usage=early), chunk(usage=USAGE), "[DONE]"))["completion_tokens"] == 42


@pytest.mark.parametrize("done", [[], ["[DONE]"]])
def test_an_error_event_at_the_end_is_an_error(done):
    body = events(chunk(), {"error": {"message": "boom", "type": "InternalServerError", "code": 500}}, *done)
    assert summarize(body) == {**NOTHING, "error": True, "server_error": True, "done": bool(done)}


@for_each_row(
    ("error", "server"),
    [
        ({"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}, True),
        ({"message": "m", "type": "Internal Server Error", "code": 500}, True),  # vLLM's two spellings
        ({"object": "error", "message": "m", "type": "SERVICE_UNAVAILABLE", "code": 503}, True),  # SGLang
        ({"message": "m", "type": "BadRequestError", "param": None, "code": 400}, False),
        ({"message": "m", "type": "InternalServerError", "code": 400}, False),  # the status says more
        ({"message": "m", "type": "NotImplementedError", "code": 501}, False),
        ({"message": "m", "code": "500"}, True),
        ({"message": "m", "code": 529}, True),
        ({"message": "m", "code": 7, "type": "server_error"}, True),  # no status
        ({"message": "m", "code": None, "type": "server_error"}, True),  # OpenAI's
        ({"message": "m", "code": "server_error"}, True),
        ({"message": "m", "code": "context_length_exceeded", "type": "invalid_request_error"}, False),
        ({"type": "api_error", "message": "Internal server error"}, True),  # Anthropic's
        ({"type": "overloaded_error", "message": "Overloaded"}, True),
        ({"type": "internal_error", "message": "m"}, True),  # vLLM's on /v1/messages
        ({"type": "rate_limit_error", "message": "m"}, False),
        ({"type": "invalid_request_error", "message": "internal server error"}, False),
        ({"message": "m"}, False),
        ({"code": {"code": 500}, "type": ["server_error"]}, False),
        ({"code": -500}, False),
        ({"code": 5e2}, False),
        ({}, False),
        ("InternalServerError", False),
        (500, False),
    ],
)
def test_whose_fault_an_error_event_is(error, server):
    """mending row 5: by the code, where that is an HTTP status, else by a name."""
    for body in (
        events(chunk(), {"error": error}, "[DONE]"),
        events(chunk()) + "event: error\n" + events({"type": "error", "error": error}),
    ):
        for size in (None, 3):
            summary = summarize(body, size)
            assert (summary["error"], summary["server_error"]) == (True, server)


def test_an_error_in_what_a_model_wrote_is_none():
    content = json.dumps({"error": {"code": 500}})
    assert summarize(events(chunk(choices=[{"delta": {"content": content}}]), "[DONE]")) == {
        **NOTHING,
        "done": True,
    }


def test_an_error_that_is_not_the_last_event_is_not_the_end():
    assert summarize(events({"error": "x"}, chunk(), "[DONE]"))["error"] is False


@pytest.mark.parametrize("value", [None, False])
def test_an_error_member_that_denies_itself_is_none(value):
    assert summarize(json.dumps({"error": value, "usage": USAGE})) == COUNTED
    assert summarize(events({"error": value}))["error"] is False


@pytest.mark.parametrize("value", ["text", {"message": "m"}, 1, True, [1]])
def test_an_error_member_at_the_top_is_an_error(value):
    assert summarize(json.dumps({"object": "error", "error": value}, indent=2))["error"] is True


def test_an_error_member_deeper_down_is_none():
    assert summarize(json.dumps({"response": {"error": {"message": "m"}}}))["error"] is False


@for_each_row("size", [None, 1, 13, 2048])
@for_each_row("length", [0, 100, 1700, 1800, 1900, 2000, 5000])
@for_each_row("indent", [None, 2])
def test_a_json_answer_of_any_length_tells_its_usage(size, length, indent):
    body = json.dumps(
        chat_answer('say "usage": {} \\ \n é' * (length // 20), prompt_logprobs=None), indent=indent
    )
    assert summarize(body, size) == COUNTED


@for_each_row("skip", range(60))
def test_wherever_the_cut_falls_the_usage_is_found(skip):
    body = json.dumps(chat_answer('\\"\\\\ "usage":{"prompt_tokens":1} \\' * 100))
    assert summarize(body + " " * skip) == COUNTED


@for_each_row("size", [None, 1, 2, 7, 13, 999, TAIL - 1, TAIL, TAIL + 1])
@for_each_row("before", [0, 20, 5000])
@for_each_row("indent", [None, 2])
def test_a_json_answer_tells_its_usage_however_much_stands_behind_it(size, before, indent):
    # vLLM puts prompt_logprobs and prompt_token_ids there.
    whole = chat_answer('say "usage": {} \\ ' * before, prompt_token_ids=list(range(5000)))
    assert summarize(json.dumps(whole, indent=indent), size) == COUNTED


@for_each_row("skip", range(20))
def test_wherever_pieces_part_the_usage_is_found_before_the_tail(skip):
    body = json.dumps({"id": "x" * skip, "usage": USAGE, "prompt_token_ids": [1] * TAIL})
    for size in (3, 8, 17, 20):
        assert summarize(body, size) == COUNTED


def test_of_several_usages_before_the_tail_the_last_one_counts():
    first = {"first": {"usage": {"prompt_tokens": 1}}, "usage": USAGE}
    for size in (None, 1, 50, 1000):
        assert summarize(json.dumps({**first, "ids": [1] * TAIL}), size) == COUNTED
        last = {**first, "ids": [1] * TAIL, "last": {"usage": {"prompt_tokens": 2}}}
        assert summarize(json.dumps(last), size) == {**NOTHING, "prompt_tokens": 2}


def test_usage_before_the_tail_is_read_up_to_a_limit():
    def counted(padding):
        return summarize(json.dumps({"usage": {"x": "x" * padding, **USAGE}, "ids": [1] * TAIL}))

    assert counted(800) == COUNTED
    assert counted(1000) == NOTHING


def test_usage_inside_a_string_before_the_tail_is_text():
    trap = '"usage": {"prompt_tokens": 1, "completion_tokens": 1}'
    for size in (None, 1, 5, 8):
        assert summarize(json.dumps({"text": trap, "ids": [1] * TAIL}), size) == NOTHING
        assert summarize(json.dumps({"usage": USAGE, "text": trap, "ids": [1] * TAIL}), size) == COUNTED


def test_usage_inside_a_string_is_text():
    trap = '"usage": {"prompt_tokens": 1, "completion_tokens": 1}'
    assert summarize(json.dumps({"choices": [{"text": trap}], "usage": None})) == NOTHING
    assert summarize(json.dumps({"usage": USAGE, "text": "{" + trap + "}"})) == COUNTED
    assert summarize(json.dumps({"usage": USAGE, "text": "\\" + trap})) == COUNTED
    assert summarize(events(chunk(choices=[{"delta": {"content": trap}}]), "[DONE]")) == {
        **NOTHING,
        "done": True,
    }


def test_a_tail_that_begins_with_usage_may_begin_inside_a_string():
    # The byte before the cut may be the backslash that makes this text.
    text = '"usage": {"prompt_tokens": 1}}'
    assert summarize(text.ljust(TAIL))["prompt_tokens"] == 1
    assert summarize("\\" + text.ljust(TAIL)) == NOTHING


def test_a_string_value_called_usage_is_not_the_member():
    assert summarize(json.dumps({"usage": USAGE, "type": "usage", "other": {"prompt_tokens": 5}})) == COUNTED


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": "100"},
        {"prompt_tokens": None, "completion_tokens": 1.5},
        {"prompt_tokens": -1},
        {"prompt_tokens_details": None},
        {"prompt_tokens_details": {"cached_tokens": {"cached_tokens": 1}}},
        {"x": {"prompt_tokens": 1}},
    ],
)
def test_usage_without_counts_says_nothing(usage):
    assert summarize(json.dumps({"usage": usage})) == NOTHING


MOST = 1_000_000_000


@pytest.mark.parametrize("tokens", [MOST + 1, 2**63, 2**64 - 1, 2**64, 10**40])
def test_more_tokens_than_a_response_can_have_are_no_count(tokens):
    """Row 8: they would be in the metrics for good."""
    assert summarize(json.dumps({"usage": {**USAGE, "completion_tokens": tokens}})) == {
        **COUNTED,
        "completion_tokens": None,
    }
    assert (
        summarize(json.dumps({"usage": {"input_tokens": tokens, "cache_read_input_tokens": tokens}}))
        == NOTHING
    )
    most = {"prompt_tokens": MOST, "completion_tokens": MOST}
    assert summarize(json.dumps({"usage": most})) == {**NOTHING, **most}


def test_no_more_of_a_prompt_is_cached_than_it_has():
    usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": 101}}
    assert summarize(json.dumps({"usage": usage})) == {**COUNTED, "cached_tokens": 100}


def test_half_a_usage_object_says_nothing():
    body = json.dumps({"usage": USAGE})
    for size in range(len(body) - 1):
        assert summarize(body[:size]) == NOTHING


def test_nesting_does_not_exhaust_the_stack():
    for opening in ("[", '{"a":', '{"usage":'):
        assert summarize('{"error":' + opening * 100_000)["error"] is False
        assert summarize('{"error":' + opening * 200)["error"] is False


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # Anthropic
        (
            'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
            '"usage":{"input_tokens":36,"output_tokens":42,"cache_read_input_tokens":64}}\n\n'
            'event: message_stop\ndata: {"type":"message_stop"}\n\n',
            COUNTED,
        ),
        # mending row 33: vLLM 0.32, a prompt of 1,100 tokens of which 1,088 were cached, was taken for 12
        (
            '{"type":"message","usage":{"input_tokens":12,"output_tokens":5,"cache_creation_input_tokens":0,'
            '"cache_read_input_tokens":1088}}',
            {**NOTHING, "prompt_tokens": 1100, "completion_tokens": 5, "cached_tokens": 1088},
        ),
        # Anthropic's own server, which has written a part of the prompt to its cache
        (
            '{"usage":{"cache_creation_input_tokens":30,"input_tokens":6,"cache_read_input_tokens":null,'
            '"output_tokens":5}}',
            {**NOTHING, "prompt_tokens": 36, "completion_tokens": 5},
        ),
        # OpenAI Responses
        (
            'event: response.completed\ndata: {"type":"response.completed","response":{"error":null,"usage":'
            '{"input_tokens":100,"input_tokens_details":{"cached_tokens":64},"output_tokens":42,"output_tokens_details":{"reasoning_tokens"'
            ':1},"total_tokens":142}},"sequence_number":9}\n\n',
            COUNTED,
        ),
        # SGLang /generate
        (
            '{"text":"x","meta_info":{"id":"1","finish_reason":{"type":"stop","matched":2},"prompt_tokens":100,'
            '"completion_tokens":42,"cached_tokens":64,"e2e_latency":1.5}}',
            COUNTED,
        ),
        # Embeddings: no completion
        (
            '{"data":[{"embedding":[0.1,-2e-05]}],"usage":{"prompt_tokens":5,"total_tokens":5}}',
            {**NOTHING, "prompt_tokens": 5},
        ),
    ],
    ids=["anthropic", "vllm messages", "cache writes", "responses", "sglang", "embeddings"],
)
def test_other_engines_and_routes_are_understood(body, expected):
    assert summarize(body) == expected


def test_an_event_longer_than_the_tail_still_tells_its_usage():
    body = events({"type": "response.completed", "text": "x" * 5000, "response": {"usage": USAGE}})
    assert summarize(body) == COUNTED
    assert summarize(body + "data: [DONE]\n\n") == {**COUNTED, "done": True}


@pytest.mark.parametrize(
    "body", ["", "\n", "data:", "data: \n\n", "[DONE]", "null", "<html>", "\xff\x00", "data: {\n\n"]
)
def test_nothing_is_said_of_what_is_not_understood(body):
    assert summarize(body) == NOTHING


def estimate(stream, size=None):
    data = stream.encode()
    pieces = [data] if size is None else [data[i : i + size] for i in range(0, len(data), size)]
    return testing.estimate_events(pieces)


@for_each_row("count", [1, 2, 3, 10, 100, 5000])
@for_each_row("done", [True, False])
@for_each_row("end", ["\n", "\r\n"])
def test_events_that_are_alike_are_counted(count, done, end):
    stream = events(*(chunk(n=f"{n:04d}") for n in range(count)), *(["[DONE]"] if done else []), end=end)
    assert estimate(stream) == count
    assert estimate(stream, size=77) == count


def test_events_of_different_sizes_are_counted_about():
    said = [chunk(text="x" * (1 + n % 7)) for n in range(1000)]
    assert (
        950 <= estimate(events(chunk(role="assistant"), *said, chunk(finish_reason="stop"), "[DONE]")) <= 1050
    )


def test_what_is_no_stream_has_no_events():
    assert estimate("") == 0
    assert estimate(json.dumps(chat_answer("data: no event " * 300))) == 0
    assert estimate(events("[DONE]")) == 0


def test_events_longer_than_the_tail_are_counted_as_if_each_filled_it():
    assert estimate(events(*(chunk(logprobs="x" * 1900) for _ in range(100)))) in range(90, 111)


# ---- whether another event may follow


@for_each_row(
    ("text", "edge"),
    [
        ("", True),
        ("\n", True),
        ("data: 1\n\n", True),
        (": ping\n\n", True),
        ("data: 1\r\n\r\n", True),
        ("data: 1\n\r\n", True),
        ("data: 1\n", False),
        ("data: 1\r\n", False),
        ("data: 1", False),
        ("data: 1\n\nd", False),
        ("data: 1\n\n: ping\n", True),
        ("data: 1\r\n\r\n:\r\n: ping\r\n", True),
        ("data: 1\r\r", True),
        ("data: 1\r\r: ping\r", True),
        ("data: 1\n\r", True),
        ("\n\n: ping", False),
        ("data: 1\n: ping\n", False),
        ("data: 1\r: ping\r", False),
        ("data: 1\n\nevent: x\n", False),
        ("data: 1\n\n ping\n", False),
        ("\n: a\n\n", True),
    ],
)
@for_each_row("before", [0, 1, TAIL - 3, TAIL, 2 * TAIL + 7])
@for_each_row("size", [1, 2, 1000, 10_000])
def test_an_event_has_ended_where_an_empty_line_came_last(text, edge, before, size):
    """Row 27: or a whole comment behind that, and whatever ends the lines."""
    data = b"x" * before + text.encode()
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    expected = edge if text not in ("", "\n") or before == 0 else False
    assert testing.tail_ends_with_event(pieces) is expected


@given(
    st.lists(st.sampled_from(["data: 1", "event: e", ": c", ":", "", " x"]), max_size=8),
    st.lists(st.sampled_from(["\n", "\r", "\r\n"]), min_size=8, max_size=8),
    st.integers(1, 7),
)
def test_an_event_has_ended_where_a_reader_of_events_says_so(lines, ends, size):
    """Row 27: a reader takes nothing of what came before for a part of the next event."""
    text = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    found, _, _ = testing.read_sse([text + b"data: ours\n\n"])
    if testing.tail_ends_with_event(pieces):
        assert found[-1] == (b"", b"ours")


# ---- what an engine aborted


def aborted(body, form="choices", size=None):
    data = body.encode() if isinstance(body, str) else body
    pieces = [data] if size is None else [data[i : i + size] for i in range(0, len(data), size)]
    return testing.tail_aborted(pieces, form)


def ended(reason, **members):
    return {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": reason,
        "stop_reason": None,
        **members,
    }


def message_events(stop_reason, *more):
    deltas = [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}]
    start = {"type": "message_start", "message": {"id": "m", "content": [], "stop_reason": None, "usage": {}}}
    last = {
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason, "stop_sequence": None},
        "usage": {},
    }
    return events(start, *deltas, *more, last, {"type": "message_stop"})


def message(stop_reason, *content):
    return {
        "type": "message",
        "content": list(content),
        "stop_reason": stop_reason,
        "usage": {"output_tokens": 1},
    }


def final(status, details=None, output=(), **members):
    """As vLLM orders the members of a response."""
    return {
        "id": "resp_1",
        "incomplete_details": details,
        "object": "response",
        "output": list(output),
        "status": status,
        "usage": USAGE,
        **members,
    }


LONG = "x" * (3 * TAIL)
# All that may be in a text, and is no end of a response.
LURES = [
    '"finish_reason":"abort"',
    '{"choices":[{"finish_reason":"abort"}]}',
    'data: {"choices":[{"finish_reason":"abort"}]}\n\n',
    '"stop_reason":null}}',
    '"status":"cancelled"}',
    '\\"finish_reason\\":\\"abort\\"}]}',
]


@pytest.mark.parametrize("size", [None, 1, 7, 2047])
@pytest.mark.parametrize("usage", [[], [chunk(usage=USAGE)]])
def test_a_stream_whose_choice_was_aborted(usage, size):
    """Row 12: what vLLM writes at a SIGTERM, behind texts of any length."""
    for text in ("", "word", LONG):
        word = chunk(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": None}])
        assert aborted(events(word, chunk(choices=[ended("abort")]), *usage, "[DONE]"), size=size)
        for reason in ("stop", "length", "tool_calls", "repetition", "error", None):
            assert not aborted(events(word, chunk(choices=[ended(reason)]), *usage, "[DONE]"), size=size)


def test_one_aborted_choice_of_several_is_enough():
    """Row 12: n is above 1; choices end in events of their own."""
    ends = [
        chunk(choices=[ended(reason, index=index)])
        for index, reason in enumerate(["stop", "abort", "length"])
    ]
    assert aborted(events(*ends, chunk(usage=USAGE), "[DONE]"))
    choices = [ended("stop"), ended("abort", index=1), ended("length", index=2)]
    assert aborted(json.dumps({"choices": choices, "usage": USAGE}))
    assert not aborted(json.dumps({"choices": [choices[0], choices[2]], "usage": USAGE}))


@pytest.mark.parametrize("text", ["", LONG])
def test_a_plain_response_whose_choice_was_aborted(text):
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "abort"}
    body = {"id": "c", "choices": [choice], "usage": USAGE, "prompt_logprobs": None}
    assert aborted(json.dumps(body))
    assert aborted(json.dumps(body, indent=1))
    choice["finish_reason"] = "stop"
    assert not aborted(json.dumps(body))


@for_each_row("lure", LURES)
@for_each_row("behind", [0, 1, 2, 1500, TAIL - 200, TAIL - 20, TAIL - 1, TAIL, 3 * TAIL])
def test_what_a_text_says_is_no_end(lure, behind):
    """Row 12: wherever the tail begins, also amid that text."""
    text = LONG + lure + "y" * behind
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop", "stop_reason": None}
    call = {
        "function": {
            "name": "f",
            "arguments": json.dumps({"choices": [{"finish_reason": "abort"}], "t": text}),
        }
    }
    calls = {"index": 0, "message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
    for one in (choice, calls):
        assert not aborted(json.dumps({"choices": [one], "usage": USAGE}))
        assert not aborted(events(chunk(choices=[one]), "[DONE]"))
    assert not aborted(json.dumps(message("end_turn", {"type": "text", "text": text})), "message")
    assert not aborted(message_events("end_turn", {"type": "x", "delta": {"text": text}}), "message")
    item = {"type": "message", "status": "completed", "content": [{"type": "output_text", "text": text}]}
    assert not aborted(json.dumps(final("completed", output=[item])), "response")
    assert not aborted(
        events({"type": "response.completed", "response": final("completed", output=[item])}), "response"
    )


def test_what_a_tool_is_called_with_is_no_end():
    """Row 12: in Anthropic's API they are objects, with names of the client."""
    nasty = {"finish_reason": "abort", "stop_reason": None, "meta_info": {"finish_reason": {"type": "abort"}}}
    for depth in range(5):
        call = {"type": "tool_use", "name": "f", "input": nasty}
        assert not aborted(json.dumps(message("tool_use", call)), "message")
        assert not aborted(json.dumps(message("tool_use", {"text": LONG}, call)), "message")
        nasty = {"a": nasty} if depth % 2 else {"choices": [nasty]}


@pytest.mark.parametrize("reason", ["abort", None])
def test_a_message_without_a_reason_was_aborted(reason):
    """Row 12: vLLM maps what it has no name for, such as abort, to null."""
    assert aborted(message_events(reason), "message")
    assert aborted(message_events(reason) + "data: [DONE]\n\n", "message")
    assert aborted(json.dumps(message(reason, {"type": "text", "text": LONG})), "message")
    call = {"type": "tool_use", "input": {"stop_reason": "end_turn"}}
    assert aborted(json.dumps(message(reason, call)), "message")


@pytest.mark.parametrize("text", ["", LONG])
def test_a_plain_message_of_vllm_has_no_null(text):
    """Row 12: so a reason that is null is left out."""
    content = [
        {"type": "text", "text": text},
        {"type": "tool_use", "input": {"stop_reason": "x", "model": "y"}},
    ]
    said = {"id": "m", "type": "message", "role": "assistant", "content": content, "model": "m"}
    usage = {"usage": {"input_tokens": 1, "output_tokens": 1}}
    assert aborted(json.dumps(said | usage), "message")
    assert not aborted(json.dumps(said | {"stop_reason": "end_turn"} | usage), "message")
    # As others order the members, a tail that lacks the reason says nothing.
    first = {"type": "message", "model": "m", "stop_reason": "end_turn", "content": content} | usage
    assert not aborted(json.dumps(first), "message")
    assert not aborted(json.dumps({"type": "error", "error": {"type": "x", "message": text}}), "message")


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"])
def test_a_message_with_a_reason_was_not(reason):
    call = {"type": "tool_use", "input": {"stop_reason": None}}
    assert not aborted(message_events(reason), "message")
    assert not aborted(json.dumps(message(reason, call)), "message")
    # vLLM writes null for the stop string of a choice that ended by itself.
    assert not aborted(json.dumps({"choices": [ended("stop")]}), "message")


@for_each_row("text", ["", LONG])
@for_each_row(
    ("status", "details", "was"),
    [
        ("completed", None, False),
        ("failed", None, False),
        ("cancelled", None, True),
        ("incomplete", {"reason": "abort"}, True),
        ("incomplete", {"reason": "max_output_tokens"}, False),
        ("incomplete", {"reason": "content_filter"}, False),
    ],
)
def test_a_response_that_was_cancelled(status, details, was, text):
    """Row 12: cancelled by vLLM. The reason of what is incomplete stands in front of the text."""
    item = {"type": "message", "status": "incomplete", "content": [{"type": "output_text", "text": text}]}
    response = final(status, details, [item])
    was = was and (status == "cancelled" or not text)
    assert aborted(json.dumps(response), "response") == was
    done = {"type": "response.output_item.done", "item": item}
    assert aborted(events(done, {"type": "response.completed", "response": response}), "response") == was
    assert aborted(events(done, {"response": response, "type": "x"}, "[DONE]"), "response") == was


def test_incomplete_without_a_reason_was_aborted():
    assert aborted(json.dumps(final("incomplete")), "response")
    assert not aborted(json.dumps(final("incomplete", {"reason": "max_output_tokens"})), "response")


@pytest.mark.parametrize(
    ("reason", "was"),
    [
        ({"type": "abort", "message": "Abort before prefill"}, True),
        ({"message": "m", "type": "abort", "status_code": None, "err_type": None}, True),
        ({"type": "abort", "message": "m", "status_code": 503}, True),
        ({"type": "abort", "message": "too long", "status_code": 400}, False),
        ({"type": "stop", "matched": "abort"}, False),
        ({"type": "length", "length": 9}, False),
        (None, False),
    ],
)
def test_sglangs_own_route(reason, was):
    """Row 12: an abort with a 4xx is about the request."""
    meta = {"id": "r", "finish_reason": reason, "prompt_tokens": 3}
    assert aborted(json.dumps({"text": "a", "meta_info": meta})) == was
    assert (
        aborted(
            json.dumps([{"text": "a", "meta_info": {"finish_reason": {"type": "stop"}}}, {"meta_info": meta}])
        )
        == was
    )
    assert aborted(events({"text": "a", "meta_info": meta}, "[DONE]")) == was


@for_each_row("form", ["choices", "message", "response"])
@for_each_row(
    "body", ["", "abort", '"abort"', "{", "data: ", '"finish_reason":"abort"', '{"finish_reason":"abort"}']
)
def test_other_texts_are_no_aborts(body, form):
    assert not aborted(body, form)


def response_event(kind, first=False, **response):
    named = {"type": kind}
    rest = {"response": {"id": "resp_1", "object": "response", **response}, "sequence_number": 9}
    return f"event: {kind}\ndata: {json.dumps({**named, **rest} if first else {**rest, **named})}\n\n"


WORD = 'data: {"type":"content_block_delta","delta":{"text":"hi"}}\n\n'
OUTPUT = [{"type": "message", "content": [{"type": "output_text", "text": "x" * 5000}]}]


@for_each_row("size", [1, 7, 2048, 100_000])
@for_each_row(
    ("stream", "ended"),
    [
        (events(chunk(), "[DONE]"), True),
        (events(chunk(), "[DONE]", end="\r\n"), True),
        (events(chunk(), "[DONE]") + ": ping\n\n", True),
        (WORD + 'event: message_stop\ndata: {"type": "message_stop"}\n\n', True),
        (response_event("response.completed", output=OUTPUT, usage=USAGE), True),
        (response_event("response.completed", True, output=OUTPUT, usage=USAGE), True),
        (response_event("response.incomplete", output=[]), True),
        (response_event("response.failed", error={"code": "server_error"}), True),
        (response_event("response.created", True, input=OUTPUT, usage=None), False),
        (response_event("response.in_progress", input=OUTPUT, usage=None), False),
        (events(chunk(usage=USAGE)), False),
        (events(chunk(), "[DONE]")[:-1], False),  # the event is not whole
        (WORD, False),
        (events({"type": "content_block_delta", "delta": {"text": '{"type":"message_stop"}'}}), False),
        (events({"type": "x", "content": {"type": "message_stop"}}), False),
        ('data: {"type":"message_start","message":{"usage":{"input_tokens":1}}}\n\n', False),
        ("", False),
    ],
)
def test_the_last_event_of_a_stream_is_told_from_all_others(stream, ended, size):
    """Row 25: a client that closes behind it has had the whole stream."""
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert testing.tail_ends_with_last_event(pieces) is ended
