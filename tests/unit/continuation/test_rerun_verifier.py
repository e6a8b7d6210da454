"""cpp/continuation/rerun_verifier.h: what of a second run goes to the client.

Random streams and a slow twin are in tests/property/test_rerun_verifier.py.
"""

import json

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

DONE = "[DONE]"
USAGE = {"choices": [], "usage": {"completion_tokens": 3}}


def stream(*events):
    data = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {each}\n\n" for each in data).encode()


def text(said, index=0, end=None, **more):
    return {"choices": [{"index": index, "text": said, "finish_reason": end, **more}]}


def chat(index=0, end=None, **delta):
    return {"choices": [{"index": index, "delta": delta, "finish_reason": end}]}


def call(index, *, id=None, name=None, arguments=None):  # noqa: A002
    function = {"name": name, "arguments": arguments}
    said = {
        "index": index,
        "id": id,
        "function": {key: value for key, value in function.items() if value is not None},
    }
    return {"tool_calls": [said]}


def verify(first, second):
    """(state, problem), and the events that go to the client."""
    delivered = testing.DeliveredText()
    delivered.add(stream(*first))
    verifier = testing.RerunVerifier(delivered)
    _, out = verifier.add(stream(*second))
    events = [event.removeprefix("data: ") for event in out.decode().split("\n\n")[:-1]]
    return (verifier.state, verifier.problem), [each if each == DONE else json.loads(each) for each in events]


CAUGHT_UP = ("caught_up", "none")


def test_what_is_new_goes_on_and_an_event_across_the_place_is_cut():
    first = [text("The "), text("sea is")]
    second = [text("The sea"), text(" is blue"), text(".", end="stop"), USAGE, DONE]
    assert verify(first, second) == (CAUGHT_UP, [text(" blue"), text(".", end="stop"), USAGE, DONE])


def test_until_then_it_is_verifying():
    assert verify([text("The sea")], [text("The "), text("se")]) == (("verifying", "none"), [])


def test_a_place_at_the_end_of_an_event():
    assert verify([text("ab")], [text("a"), text("b"), text("c")]) == (CAUGHT_UP, [text("c")])


def test_another_text_is_found_at_the_place():
    assert verify([text("The sea")], [text("The s"), text("ky is")]) == (("differs", "text"), [])


def test_behind_a_difference_nothing_goes_on():
    first = [text("ab")]
    delivered = testing.DeliveredText()
    delivered.add(stream(*first))
    verifier = testing.RerunVerifier(delivered)
    assert verifier.add(stream(text("ax"))) == ("differs", b"")
    assert verifier.add(stream(text("c"), DONE)) == ("differs", b"")


@for_each_row("end", [text("b", end="stop"), text("", end="length"), DONE])
def test_a_run_that_ends_earlier_is_short(end):
    assert verify([text("abc")], [text("a"), end]) == (("differs", "short"), [])


def test_a_character_is_never_cut():
    assert verify([text("é")], [text("é\U0001f600")]) == (CAUGHT_UP, [text("\U0001f600")])
    # The same first byte, and another character.
    assert verify([text("é")], [text("è!")]) == (("differs", "text"), [])


def test_texts_are_compared_by_what_they_mean():
    second = '{"choices":[{"index":0,"text":"\\u00e9b\\"","finish_reason":null}]}'
    assert verify([text("é")], [second]) == (CAUGHT_UP, [text('b"')])


def test_the_head_is_that_of_the_first_stream():
    first = [{"id": "1", "created": 5, "model": "a", **text("x")}]
    second = [{"id": "2", "created": 6, "model": "b", **text("xy")}, {"id": "2", **USAGE}]
    ours = {"id": "1", "created": 5, "model": "a", **text("y")}
    assert verify(first, second) == (CAUGHT_UP, [ours, {"id": "1", **USAGE}])


def test_other_bytes_stay():
    delivered = testing.DeliveredText()
    delivered.add(b'data: {"id":"1","choices":[{"text":"ab"}]}\n\n')
    verifier = testing.RerunVerifier(delivered)
    second = b': ping\n\ndata:{"x" : [1.50], "id": "22","choices":[ {"text":"ab\\u0063", "y":1e3}] }\r\n\r\n'
    out = b'data: {"x" : [1.50], "id": "1","choices":[ {"text":"c", "y":1e3}] }\n\n'
    assert verifier.add(second) == ("caught_up", out)


def test_an_event_of_two_lines_stays_one():
    delivered = testing.DeliveredText()
    verifier = testing.RerunVerifier(delivered)
    event = b'data: {"choices":\ndata: []}\n\n'
    assert verifier.add(event) == ("caught_up", event)


def test_a_role_that_the_client_has_is_dropped():
    role = chat(role="assistant", content="")
    first, second = [role, chat(content="a")], [role, chat(content="ab"), chat(end="stop"), DONE]
    assert verify(first, second) == (CAUGHT_UP, [chat(content="b"), chat(end="stop"), DONE])
    assert verify([role], second) == (CAUGHT_UP, [chat(content="ab"), chat(end="stop"), DONE])
    assert verify([], second) == (CAUGHT_UP, second)


def test_a_role_beside_new_text_becomes_null():
    both = [chat(role="assistant", content="ab")]
    assert verify([chat(role="assistant", content="a")], both) == (CAUGHT_UP, [chat(role=None, content="b")])


def test_reasoning_and_content():
    first = [chat(reasoning="Let me"), chat(content="H")]
    second = [chat(reasoning="Let"), chat(reasoning=" me", content="Hi"), chat(content="!")]
    assert verify(first, second) == (CAUGHT_UP, [chat(reasoning="", content="i"), chat(content="!")])


def test_more_reasoning_before_the_same_content_differs():
    first = [chat(reasoning="Let me"), chat(content="H")]
    assert verify(first, [chat(reasoning="Let me see"), chat(content="Hi")])[0] == ("differs", "text")
    assert verify(first, [chat(reasoning="Let me see"), chat(content="Hi")])[1] == []


def test_a_text_under_two_names_is_cut_under_both():
    first = [chat(reasoning="a", reasoning_content="a")]
    second = [chat(reasoning="ab", reasoning_content="ab")]
    assert verify(first, second) == (CAUGHT_UP, [chat(reasoning="b", reasoning_content="b")])


def test_a_tool_call_keeps_its_first_id():
    first = [chat(**call(0, id="call_1", name="f")), chat(**call(0, arguments='{"a'))]
    second = [chat(**call(0, id="call_2", name="f", arguments='{"a":1')), chat(**call(0, arguments="}"))]
    rest = chat(**call(0, id=None, name="", arguments='":1'))
    assert verify(first, second) == (CAUGHT_UP, [rest, chat(**call(0, arguments="}"))])


def test_a_new_tool_call_has_the_id_of_the_second_run():
    first = [chat(**call(0, id="call_1", name="f"))]
    second = [chat(**call(0, id="call_2", name="f")), chat(**call(1, id="call_3", name="f"))]
    assert verify(first, second) == (CAUGHT_UP, [second[1]])


def test_another_tool_or_another_call_differs():
    first = [chat(**call(0, id="call_1", name="f"))]
    assert verify(first, [chat(**call(0, id="call_1", name="g"))])[0] == ("differs", "text")
    assert verify(first, [chat(**call(1, id="call_1", name="f"))])[0] == ("differs", "text")


@for_each_row("details", [{"logprobs": {"tokens": ["ab"]}}, {"token_ids": [1, 2]}])
def test_an_event_with_details_cannot_be_divided(details):
    assert verify([text("a")], [text("ab", **details)]) == (("differs", "divided"), [])
    assert verify([text("a")], [text("a", **details), text("b", **details)]) == (
        CAUGHT_UP,
        [text("b", **details)],
    )


def test_each_choice_has_its_place():
    first = [text("a", 0), text("xy", 1)]
    second = [text("ab", 0), text("x", 1), text("yz", 1)]
    assert verify(first, second) == (CAUGHT_UP, [text("b", 0), text("z", 1)])


def test_a_choice_that_the_client_does_not_know_is_new():
    assert verify([text("a", 0)], [text("x", 1), text("a", 0)]) == (CAUGHT_UP, [text("x", 1)])


def test_a_choice_that_has_ended_ends_no_second_time():
    first = [text("a", 0, end="stop"), text("x", 1)]
    second = [text("a", 0, end="stop"), text("xy", 1, end="stop"), DONE]
    assert verify(first, second) == (CAUGHT_UP, [text("y", 1, end="stop"), DONE])


def test_a_choice_that_goes_on_behind_its_end_differs():
    first = [text("a", 0, end="stop"), text("x", 1)]
    assert verify(first, [text("ab", 0)]) == (("differs", "text"), [])


def test_of_an_event_with_several_choices_the_new_parts_go_on():
    def both(*choices):
        return {"choices": [choice["choices"][0] for choice in choices]}

    first = [text("a", 0, end="stop"), text("x", 1)]
    second = [both(text("a", 0, end="stop"), text("xy", 1))]
    assert verify(first, second) == (CAUGHT_UP, [both(text("", 0), text("y", 1))])


def test_a_usage_in_front_of_the_place_is_dropped():
    assert verify([text("ab")], [USAGE, text("abc"), USAGE]) == (CAUGHT_UP, [text("c"), USAGE])


def test_a_usage_that_the_client_has_is_not_repeated():
    first = [text("a"), text("", end="stop"), USAGE]
    assert verify(first, [*first, DONE]) == (CAUGHT_UP, [DONE])
    assert verify([USAGE, text("a")], [USAGE, *first, DONE]) == (
        CAUGHT_UP,
        [text("", end="stop"), USAGE, DONE],
    )


@for_each_row("event", ["x", '{"error":{"message":"x"}}', '{"choices":[{"delta":{"speech":"x"}}]}'])
def test_an_event_of_another_shape_is_unreadable(event):
    assert verify([text("ab")], [text("a"), event]) == (("differs", "unreadable"), [])


def test_an_event_of_another_shape_goes_on_behind_the_place():
    event = '{"id":"2","error":{"message":"x","code":400}}'
    first, second = [{"id": "1", **text("a")}], [{"id": "2", **text("a")}, event, DONE]
    assert verify(first, second) == (CAUGHT_UP, [json.loads(event), DONE])


def test_what_was_dropped_is_counted():
    delivered = testing.DeliveredText()
    delivered.add(stream(chat(reasoning="ab"), chat(content="é")))
    verifier = testing.RerunVerifier(delivered)
    verifier.add(stream(chat(reasoning="ab"), chat(content="éa"), chat(content="b")))
    assert verifier.dropped_bytes == 4


def test_with_nothing_delivered_all_is_new():
    second = [text("a"), text("b", end="stop"), USAGE, DONE]
    assert verify([], second) == (CAUGHT_UP, second)
