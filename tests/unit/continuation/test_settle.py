"""cpp/continuation/settle.h: where a stream may go on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.continuation.test_token_stream import (
    IDS,
    PROMPT,
    SIZES,
    chat,
    completion,
    completions,
    harness,
    shown,
    text_of,
)


@given(IDS, SIZES, st.booleans())
def test_a_place_is_one_where_text_and_ids_end_alike(ids, sizes, may_swallow):
    stream = harness()
    events = completions(ids, sizes)
    stream.write(b"".join(events), False)
    delivered = shown(ids)
    asked = []

    def answer(listed):
        asked.append(json.loads(f"[{listed}]"))
        return text_of(asked[-1])

    found = stream.settle(may_swallow, answer)
    assert len(asked) <= 16
    if found is None:
        return
    kept, swallowed = found
    assert text_of(ids[:kept]) + swallowed.decode() == delivered
    assert may_swallow or not swallowed


def test_a_character_that_lacks_bytes_is_drawn_again():
    for cut in range(1, 4):
        stream = harness()
        emoji = [6, 7, 8, 9][:cut]
        stream.write(b"".join(completions([0, 1, *emoji], [1])), False)
        assert stream.settle(False, lambda listed: text_of(json.loads(f"[{listed}]"))) == (2, b"")


def test_what_the_client_has_behind_a_place_comes_again_or_there_is_none():
    def begun():
        stream = harness(chat=True)
        stream.write(chat({"role": "assistant", "content": ""}, prompt=PROMPT), False)
        stream.write(chat({"reasoning": "it"}, [5]) + chat({"reasoning": "."}, [6]), False)  # 6 is ".</"
        return stream

    texts = {"0,1,5,6": "?it.</", "0,1,5": "?it"}
    assert begun().settle(True, texts.get) == (1, b".")
    assert begun().settle(False, texts.get) is None
    stream = begun()
    stream.rest(1, b".")
    before = stream.client
    role = chat({"role": "assistant", "content": ""}, prompt=[*PROMPT, 5])
    assert stream.write(role + chat({"reasoning": ".!"}, [7]), False)
    assert stream.client[len(before) :] == chat({"reasoning": "!"}, None)
    assert stream.output == [5, 7]


@pytest.mark.parametrize("piece", ["-", "\n", "ab", "é "])
def test_text_that_repeats_itself_has_no_place(piece):
    """What is held back looks like what was delivered: any of the last ids may be the place."""

    def begun(text):
        stream = harness()
        stream.write(completion(text, [5, 6, 7, 8], PROMPT), False)
        return stream

    texts = {"0,1,5,6,7,8": f"x{piece * 30}", "0,1,5,6,7": f"x{piece * 29}"}
    for delivered in (piece * 29, piece * 28):
        assert begun(f"x{delivered}").settle(False, texts.get) is None
    # Behind a run that is seen from its beginning there is one.
    assert begun(f"x{piece * 3}").settle(False, {"0,1,5,6,7,8": f"x{piece * 3}"}.get) == (4, b"")
