"""CacheControlEdit against its slow twin: the client's object and one marker, or the client's bytes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models.body_map import members
from tests.models.cache_control import MARKER, NAME, edited
from vllm_router._core_testing import add_cache_control

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=6) | st.sampled_from(
    ["", " ", "\n\t", "\x0b", "\u3000", '"cache_control"', '"}]', "\\", "é😀"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "type", NAME]), inner, max_size=2)
    ),
    max_leaves=4,
)
BLANKS = st.sampled_from(["", "", " ", "\n\t", "\r\n "])
TYPES = st.sampled_from(["text", "text", "text", "image", ""])


@st.composite
def spelled(draw, text):
    """A JSON string, some of whose characters are escaped."""
    if draw(st.booleans()):
        return json.dumps(text, ensure_ascii=draw(st.booleans()))
    units = text.encode("utf-16-be")
    return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2)) + '"'


@st.composite
def joined(draw, members, opening="{}"):
    before, after = draw(BLANKS), draw(BLANKS)
    inner = ",".join(f"{before}{member}{after}" for member in members)
    return opening[0] + (inner or before) + opening[1]


@st.composite
def blocks(draw):
    written = []
    if draw(st.integers(0, 9)):
        written.append(f'"type"{draw(BLANKS)}:{draw(BLANKS)}{draw(spelled(draw(TYPES)))}')
    if draw(st.integers(0, 9)):
        written.append(f'"text":{draw(spelled(draw(TEXTS)))}')
    for name in draw(st.lists(st.sampled_from(["a", "b", "citations", "text", NAME]), max_size=1)):
        written.append(f"{json.dumps(name)}:{json.dumps(draw(VALUES))}")
    return draw(joined(draw(st.permutations(written))))


@st.composite
def systems(draw):
    kind = draw(st.integers(0, 9))
    if kind < 3:
        return draw(spelled(draw(TEXTS)))
    if kind == 3:
        return json.dumps(draw(VALUES))
    parts = draw(st.lists(blocks() | blocks() | blocks() | VALUES.map(json.dumps), max_size=4))
    return draw(joined(parts, "[]"))


@st.composite
def bodies(draw):
    written = [
        f'"system"{draw(BLANKS)}:{draw(BLANKS)}{draw(systems())}'
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2])))
    ]
    rest = st.sampled_from(["model", "messages", "max_tokens", "x"]) | st.sampled_from(
        [NAME, "syst", "é", "a/b"]
    )
    for name in draw(st.lists(rest, max_size=3)):
        spelled_name = (
            draw(spelled(name)) if draw(st.integers(0, 9)) == 0 else json.dumps(name, ensure_ascii=False)
        )
        written.append(f"{spelled_name}:{json.dumps(draw(VALUES))}")
    if draw(st.booleans()):
        markers = [{"content": [{"type": "text", "text": "a", NAME: MARKER}]}] * draw(st.integers(0, 5))
        written.append(f'"others":{json.dumps(markers)}')
    return draw(BLANKS) + draw(joined(draw(st.permutations(written)))) + draw(BLANKS)


def without_marker(text):
    """The texts that may stand in a body for one marker."""
    marker = ',"cache_control":{"type":"ephemeral"}'
    return {text[:at] + text[at + len(marker) :] for at in range(len(text)) if text.startswith(marker, at)}


@given(bodies())
def test_a_body_gets_one_marker_or_stays(text):
    result, copy = add_cache_control(text.encode())
    expected = edited(text)
    assert result == expected.result
    if result != "added":
        assert copy == text.encode()
        return
    assert json.loads(copy) == expected.body
    # All that the client wrote is there, in its order and spelling.
    (system,) = (member for member in members(text) if member.name == "system")
    if isinstance(system.value, str):
        block = f'[{{"type":"text","text":{system.spelled_value},"cache_control":{{"type":"ephemeral"}}}}]'
        before, after = copy.decode().split(block, 1)
        assert before + system.spelled_value + after == text
    else:
        assert text in without_marker(copy.decode())


@given(bodies(), st.data())
def test_what_is_no_json_does_not_become_some(text, data):
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 2))
    damaged = (
        text[:at]
        + data.draw(st.sampled_from(['"', "{", "}", "[", "]", ",", ":", "\\", "1", ""]))
        + text[at + cut :]
    )
    result, copy = add_cache_control(damaged.encode())
    try:
        json.loads(damaged)
    except ValueError:
        if result == "added":
            try:
                json.loads(copy)
            except ValueError:
                return
            raise AssertionError("it has become JSON") from None
        assert copy == damaged.encode()
