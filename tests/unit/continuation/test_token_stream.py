"""cpp/continuation/token_stream.h: ids of a stream, and what its client sees.

The engine of the slow twin: each token is bytes, and a text is what of them is whole characters.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

PIECES = [
    b"a",
    b" b",
    b"ha",
    b"ha ",
    "é".encode()[:1],
    "é".encode()[1:],
    *(bytes([one]) for one in "😀".encode()),
]
PROMPT = [0, 1]
DONE = b"data: [DONE]\n\n"
CUT = "\ufffd"


def text_of(ids):
    return b"".join(PIECES[one] for one in ids).decode(errors="replace")


def shown(ids):
    """What an engine has sent of these ids: it waits while the last character lacks bytes."""
    end = max((end for end in range(len(ids) + 1) if not text_of(ids[:end]).endswith(CUT)), default=0)
    return text_of(ids[:end])


def sse(event):
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def chat(delta, ids=None, prompt=None, **more):
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, "token_ids": ids, **more}
    event = {"id": "a", "created": 1, "model": "m", "choices": [choice]}
    return sse(event if prompt is None else event | {"prompt_token_ids": prompt})


def completion(text, ids, prompt=None, **more):
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": None}
    choice |= {"prompt_token_ids": prompt, "token_ids": ids, **more}
    return sse({"id": "a", "created": 1, "model": "m", "choices": [choice]})


def completions(ids, sizes, prompt=PROMPT):
    """Events of so many ids each, in turn."""
    events, at = [], 0
    while at < len(ids):
        end = at + sizes[len(events) % len(sizes)]
        text = shown(ids[:end])[len(shown(ids[:at])) :]
        events.append(completion(text, ids[at:end], prompt if not events else None))
        at = end
    return events


def harness(*, chat=False, hides=True, most=1000):
    return testing.TokenSinkHarness(chat, hides, most)


def without_ids(data):
    return b"".join(
        sse(_nulled(json.loads(each[6:]))) if each.startswith(b"data: {") else each + b"\n\n"
        for each in data.split(b"\n\n")[:-1]
    )


def _nulled(event):
    for part in (event, *event["choices"]):
        part.update({name: None for name in ("prompt_token_ids", "token_ids") if name in part})
    return event


IDS = st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=40)
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(IDS, SIZES, st.lists(st.integers(1, 200), min_size=1))
def test_ids_are_noted_and_hidden_whatever_the_pieces(ids, sizes, cuts):
    data = b"".join(completions(ids, sizes)) + DONE
    stream = harness()
    at = turn = 0
    while at < len(data):
        end = at + cuts[turn % len(cuts)]
        assert stream.write(data[at:end], end >= len(data))
        at, turn = end, turn + 1
    assert stream.client == without_ids(data)
    assert (stream.prompt, stream.output, stream.known) == (PROMPT, ids, True)
    seen = harness(hides=False)
    seen.write(data, True)
    assert seen.client == data


@pytest.mark.parametrize(
    "event",
    [
        completion("b", None),
        completion("b", [2**32]),
        completion("b", [-1]),
        completion("b", ["x"]),
        completion("b", [0] * 1000),
    ],
)
def test_a_text_without_readable_ids_ends_the_knowledge_and_not_the_stream(event):
    stream = harness()
    stream.write(completion("a", [0], PROMPT), False)
    assert stream.write(event, False)
    assert not stream.known
    assert stream.client == without_ids(completion("a", [0], PROMPT) + event)


@pytest.mark.parametrize(
    "event", [b"data: {\n\n", b"data: {}\n\n", b"data: 1\n\n", b": x\n\n", b"data: a\ndata: b\n\n"]
)
def test_what_is_no_such_event_passes(event):
    stream = harness()
    stream.write(completion("a", [0], PROMPT), False)
    assert stream.write(event, False)
    assert stream.client.endswith(event)


def test_an_event_for_ids_alone_is_not_the_clients():
    stream = harness(chat=True)
    stream.write(chat({"role": "assistant", "content": ""}, prompt=PROMPT) + chat({}, [5]), False)
    stream.write(chat({}, [6], logprobs={}) + chat({}, [7], finish_reason="stop"), False)
    assert stream.output == [5, 6, 7]
    assert stream.client.count(b"data:") == 3


@pytest.mark.parametrize("prompt", [None, [], PROMPT, [*PROMPT, 5], [*PROMPT, 0, 1, 2]])
def test_the_rest_has_all_ids_in_its_prompt_or_is_not_read(prompt):
    stream = harness()
    stream.write(b"".join(completions([0, 1], [1])), False)
    stream.rest(2, b"")
    before = stream.client
    assert not stream.write(completion("x", [2], prompt), False)
    assert stream.unfit
    assert stream.client == before


RECEIPT = completion("x", [2], [*PROMPT, 0, 1])


@pytest.mark.parametrize(
    ("event", "last"),
    [
        (DONE, False),
        (sse({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 1}}), False),
        (b"event: x\n" + RECEIPT, False),
        (b": x\n" + RECEIPT, False),
        (RECEIPT.replace(b'"model":"m"', b'"model":"m","model":"m"'), False),
        (b"", True),
    ],
    ids=["end", "usage", "two fields", "behind a comment", "a member twice", "nothing"],
)
def test_nothing_of_the_rest_passes_before_its_prompt_was_checked(event, last):
    stream = harness()
    stream.write(b"".join(completions([0, 1], [1])), False)
    stream.rest(2, b"")
    assert stream.write(b": a comment\n\n", False)
    before = stream.client
    assert not stream.write(event, last)
    assert stream.unfit
    assert stream.client == before


def test_a_rerun_brings_the_ids_of_its_own():
    stream = harness()
    stream.write(b"".join(completions([0, 1, 0], [1])), False)
    stream.rerun()
    assert stream.write(b"".join(completions([0, 1, 0, 1], [2])) + DONE, True)
    assert stream.output == [0, 1, 0, 1]
    assert stream.client == without_ids(b"".join(completions([0, 1, 0, 1], [1]))) + DONE
