"""cpp/continuation/delivered_text.h: what a client has of a stream."""

import json

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def stream(*events):
    data = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {each}\n\n" for each in data).encode()


def text(said, index=0, end=None, **head):
    return {"choices": [{"index": index, "text": said, "finish_reason": end}], **head}


def delivered(*events):
    made = testing.DeliveredText()
    made.add(stream(*events))
    return made


def transcript_of(said):
    return testing.text_digest([b"\xffc\xfe" + said.encode()])


def test_nothing_was_delivered():
    made = testing.DeliveredText()
    assert made.ok
    assert not made.done
    assert made.choices == []
    assert made.head == ("", "", "")
    assert not made.all_ended(1)


def test_texts_of_each_choice_are_one_text():
    made = delivered(text("a"), text("x", 1), text("b"), text("c", end="stop"))
    assert made.choices == [(0, *transcript_of("abc"), True), (1, *transcript_of("x"), False)]
    assert not made.all_ended(2)


def test_all_have_ended_if_so_many_have_begun():
    made = delivered(text("a", end="stop"))
    assert made.all_ended(1)
    assert not made.all_ended(2)


def test_an_incomplete_event_counts_when_it_is_complete():
    made, whole = testing.DeliveredText(), stream(text("abc"))
    for byte in whole[:-1]:
        made.add(bytes([byte]))
        assert made.choices == []
    made.add(whole[-1:])
    assert made.choices == [(0, *transcript_of("abc"), False)]


def test_the_head_is_that_of_the_first_event():
    made = delivered(text("a", id="1", created=5, model="m"), text("b", id="2", created=6, model="n"))
    assert made.head == ('"1"', "5", '"m"')
    assert delivered(text("a"), text("b", id="2")).head == ("", "", "")


def test_a_text_under_two_names_counts_once():
    both = {"reasoning": "a", "reasoning_content": "a"}
    made = delivered({"choices": [{"index": 0, "delta": both}]})
    assert made.choices == [(0, *testing.text_digest([b"\xffr\xfea"]), False)]


@for_each_row(
    ("deltas", "phase"),
    [
        ([], "text"),
        ([{"role": "assistant", "content": ""}], "text"),
        ([{"reasoning": "a"}], "reasoning"),
        ([{"reasoning": "a"}, {"content": ""}], "reasoning"),
        ([{"reasoning": "a", "content": "b"}], "text"),
        ([{"content": "a"}, {"reasoning": "b"}], "reasoning"),
        ([{"tool_calls": [{"index": 0, "function": {"name": "f"}}]}], "tool_call"),
        ([{"tool_calls": [{"index": 0, "function": {"name": "f"}}]}, {"content": "a"}], "tool_call"),
    ],
)
def test_the_phase_is_what_the_client_got_last(deltas, phase):
    made = delivered(*({"choices": [{"index": 0, "delta": delta}]} for delta in deltas))
    assert made.phase == phase


def test_the_end_of_the_stream():
    made = delivered(text("a", end="stop"), {"choices": [], "usage": {}}, "[DONE]")
    assert made.ok
    assert made.done
    made.add(b": a comment\n\n")
    assert made.ok
    made.add(stream(text("b")))
    assert not made.ok


@for_each_row("event", ["x", '{"error":{"message":"x"}}', '{"choices":[{"delta":{"speech":"x"}}]}'])
def test_after_an_event_of_another_shape_nothing_is_known(event):
    made = delivered(text("a"), event, text("b"))
    assert not made.ok


def test_choices_are_bounded():
    most = testing.MAX_CONTINUED_CHOICES
    assert delivered(*(text("a", index) for index in range(most))).ok
    assert not delivered(*(text("a", index) for index in range(most + 1))).ok


def test_a_long_head_is_not_kept():
    most = testing.MAX_CONTINUED_HEAD_BYTES - 2
    assert delivered(text("a", id="x" * most)).ok
    assert not delivered(text("a", id="x" * (most + 1))).ok


def test_an_event_is_bounded():
    made = testing.DeliveredText()
    for _ in range(17):
        made.add(b"data: " + b"x" * 65536)
    assert not made.ok
