"""cpp/continuation/repeated_event.h: events that differ from an earlier one in their text alone."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

CHAT = '{"id":"x","choices":[{"index":2,"delta":{"content":%s},"finish_reason":null}]}'
CALL = '{"choices":[{"delta":{"tool_calls":[{"index":3,"function":{"arguments":%s}}]}}]}'


def event(data):
    return f"data: {data}\n\n".encode()


def learned(data, of_event=None):
    made = testing.RepeatedEvent()
    made.learn(of_event or event(data), data)
    return made


def test_nothing_matches_what_was_not_learned():
    assert testing.RepeatedEvent().find(event(CHAT % '"a"')) is None
    made = learned(CHAT % '"a"')
    made.forget()
    assert made.find(event(CHAT % '"a"')) is None


def test_the_text_between_the_same_bytes_is_found():
    made, next_one = learned(CHAT % '"a"'), event(CHAT % '"b c"')
    assert made.find(next_one + b"data: more") == (len(next_one), b"b c", False)
    assert made.of == (2, "content", 0)
    assert learned(CALL % '"a"').of == (0, "tool_arguments", 3)


def test_a_text_ends_at_the_first_quote_that_is_not_escaped():
    next_one = event(CHAT % r'"say \"a\\"')
    assert learned(CHAT % '"a"').find(next_one) == (len(next_one), rb"say \"a\\", True)


@for_each_row(
    "stream",
    [
        b"",
        event(CHAT % '"b"')[:-1],  # not all of it is there
        event(CHAT % '"b')[:-6],
        event(CHAT % "null"),
        event(CHAT.replace('"index":2', '"index":1') % '"b"'),
        event(CHAT.replace("null", '"stop"') % '"b"'),
        event(CHAT % '"b\n"'),  # a line end in the text would end the data
    ],
)
def test_another_event_does_not_match(stream):
    assert learned(CHAT % '"a"').find(stream) is None


@for_each_row(
    ("data", "of_event"),
    [
        (CHAT.replace("null", '"stop"') % '"a"', None),
        ('{"choices":[{"index":0,"text":"a"},{"index":1,"text":"b"}]}', None),
        ('{"choices":[{"delta":{"reasoning":"a","content":"b"}}]}', None),
        ('{"choices":[{"delta":{"role":"assistant"}}]}', None),
        (CHAT % '"a"', b"id: 1\n" + event(CHAT % '"a"')),
        (CHAT % '"a"', event(CHAT % '"a"').replace(b"\n", b"\r\n")),
        (CHAT.replace('"x"', '"' + "x" * testing.MAX_REPEATED_EVENT_BYTES + '"') % '"a"', None),
    ],
)
def test_what_says_more_than_one_text_is_not_learned(data, of_event):
    made = learned(CHAT % '"before"')
    made.learn(of_event or event(data), data)
    assert made.find(of_event or event(data)) is None
    assert made.find(event(CHAT % '"before"')) is None  # that was forgotten
