"""cpp/continuation/transcript.h: what a choice has said, as one text with marks."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def transcript(*texts):
    made = testing.Transcript()
    for kind, call, text in texts:
        made.add(kind, call, text)
    return made


def written(*texts):
    """Bytes and hash."""
    made = transcript(*texts)
    return made.bytes, made.hash


@for_each_row(
    ("texts", "whole"),
    [
        ([], b""),
        ([("content", 0, "Hi")], b"\xffc\xfeHi"),
        ([("content", 0, "H"), ("content", 0, ""), ("content", 0, "i")], b"\xffc\xfeHi"),
        ([("reasoning", 0, "a"), ("content", 0, "é")], b"\xffr\xfea\xffc\xfe\xc3\xa9"),
        ([("refusal", 0, "no")], b"\xfff\xfeno"),
        ([("tool_name", 12, "f"), ("tool_arguments", 12, "{}")], b"\xffn12\xfef\xffa12\xfe{}"),
        ([("tool_arguments", 0, "{"), ("tool_arguments", 1, "{")], b"\xffa0\xfe{\xffa1\xfe{"),
        ([("content", 0, "")], b""),
        ([("content", 0, "a"), ("reasoning", 0, ""), ("content", 0, "b")], b"\xffc\xfeab"),
    ],
)
def test_a_transcript_is_the_texts_with_a_mark_at_each_change(texts, whole):
    assert written(*texts) == testing.text_digest([whole])


def test_a_mark_is_written_where_the_channel_changes():
    made = transcript(("tool_name", 3, "f"))
    assert made.mark_bytes("tool_name", 3) == 0
    assert made.mark_bytes("tool_arguments", 3) == 4
    assert made.mark_bytes("tool_arguments", 10) == 5
    assert made.mark_bytes("content", 0) == 3
    assert testing.Transcript().mark_bytes("content", 0) == 3


def test_calls_are_those_that_have_begun():
    assert testing.Transcript().calls == 0
    assert transcript(("content", 0, "a")).calls == 0
    assert transcript(("tool_name", 1, "")).calls == 0
    assert transcript(("tool_name", 1, "f"), ("tool_name", 0, "g")).calls == 2
