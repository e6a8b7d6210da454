"""StreamTail::Aborted() against a twin that reads the whole body as JSON."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

TAIL = 2048
REASONS = [
    None,
    "stop",
    "abort",
    "length",
    {"type": "abort"},
    {"type": "stop"},
    {"type": "abort", "status_code": 400},
]
# Names and texts of the real ones, wherever they do not count.
words = st.sampled_from(
    [
        "finish_reason",
        "abort",
        "choices",
        "stop_reason",
        '"finish_reason":"abort"}]}',
        "\\",
        '"',
        "}]}",
        "\n\ndata: x",
        "é",
    ]
)
texts = st.lists(words, max_size=8).map("".join)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


def says_abort(reason):
    if isinstance(reason, dict):
        return reason.get("type") == "abort" and not 400 <= (reason.get("status_code") or 0) < 500
    return reason == "abort"


def twin(body):
    """Whether a member finish_reason stands where its API has it."""
    found = [choice.get("finish_reason") for choice in body["choices"]]
    return any(says_abort(reason) for reason in found)


choice = st.fixed_dictionaries(
    {"index": st.integers(0, 3), "message": st.fixed_dictionaries({"content": texts, "x": anything})},
    optional={"logprobs": anything, "finish_reason": st.sampled_from(REASONS), "token_ids": anything},
)
bodies = st.fixed_dictionaries(
    {"choices": st.lists(choice, max_size=3)}, optional={"usage": st.just({"prompt_tokens": 1}), "x": texts}
)


@given(bodies, st.integers(0, 3000), st.integers(1, 3000), st.booleans())
@example({"choices": [{"finish_reason": "abort"}]}, 0, 1, True)
def test_what_the_tail_says_is_what_the_whole_says(body, padding, piece, stream):
    """Row 12: exactly, where the tail is the whole; else it may say less."""
    if body["choices"]:
        body["choices"][0]["padding"] = "p" * padding
        body["choices"][0] |= {"finish_reason": body["choices"][0].pop("finish_reason", None)}
    text = json.dumps(body)
    data = (f"data: {text}\n\ndata: [DONE]\n\n" if stream else text).encode()
    said = testing.tail_aborted([data[at : at + piece] for at in range(0, len(data), piece)], "choices")
    if len(data) <= TAIL:
        assert said == twin(body)
    else:
        assert twin(body) or not said
