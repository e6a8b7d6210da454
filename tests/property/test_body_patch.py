"""BodyMap and BodyPatch against their slow twin: any object, spelled in any way, damaged anywhere."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models.body_map import edited, members, pairs
from vllm_router import _core_testing as testing

NAMES = st.sampled_from(
    [
        "model",
        "max_tokens",
        "stream",
        "stream_options",
        "kv_transfer_params",
        "bootstrap_room",
        "bootstrap_",
        "a",
        "",
    ]
) | st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.sampled_from(
    ['"', "\\", '\\"', "}", "],", '{"max_tokens":7}', ',"stream":1', "é😀", "a\nb"]
)
NUMBERS = st.sampled_from(["1.0", "1e5", "-0", "1E+2", "12345678901234567890", "0.10", "NaN", "-Infinity"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
BLANKS = st.sampled_from(["", "", " ", "\n\t", "\r\n "])


@st.composite
def spelled(draw, text):
    """A JSON string, some of whose characters are escaped."""
    if draw(st.booleans()):
        return json.dumps(text, ensure_ascii=draw(st.booleans()))
    units = text.encode("utf-16-be")
    return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2)) + '"'


@st.composite
def bodies(draw):
    written = []
    for name, value in draw(
        st.lists(st.tuples(NAMES, VALUES | NUMBERS.map(lambda text: (text,))), max_size=7)
    ):
        if isinstance(value, tuple):
            text = value[0]
        elif isinstance(value, str):
            text = draw(spelled(value))
        else:
            text = json.dumps(value, indent=draw(st.sampled_from([None, 1])))
        gaps = [draw(BLANKS) for _ in range(4)]
        written.append(f"{gaps[0]}{draw(spelled(name))}{gaps[1]}:{gaps[2]}{text}{gaps[3]}")
    gap = "" if written else draw(BLANKS)
    return f"{draw(BLANKS)}{{{','.join(written)}{gap}}}{draw(BLANKS)}"


@st.composite
def damaged(draw):
    """A body with a few characters taken out, put in or exchanged."""
    text = draw(bodies())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        out = draw(st.integers(0, 2))
        text = (
            text[:at]
            + draw(st.sampled_from(['"', "{", "}", "[", "]", ",", ":", "\\", "1", " ", "", ""]))
            + text[at + out :]
        )
    return text


@st.composite
def edits(draw):
    removed = draw(
        st.sets(st.sampled_from(["max_tokens", "stream_options", "a", "", "bootstrap_*"]), max_size=3)
    )
    names = draw(st.lists(st.sampled_from(["max_tokens", "stream", "kv_transfer_params"]), unique=True))
    return removed, [(name, draw(VALUES)) for name in names]


def spliced(text, removed, inserted):
    """The copy, the pieces and where they stand; None for what is no object."""
    how = [("remove", name) for name in removed]
    how += [
        ("insert" if at % 2 else "insert_bytes", name, json.dumps(value).encode())
        for at, (name, value) in enumerate(inserted)
    ]
    body = text.encode()
    try:
        pieces, size, gone, places = testing.splice(body, how)
    except ValueError:
        return None
    copy = b"".join(pieces)
    assert len(copy) == size
    if all(place == -1 for place in places):
        assert len(body) == 0 or gone == len(testing.read_body_map(body)[2])
    # What is kept stands in the copy in the body's order, and is never cut into neighbors.
    inside = [(place, place + len(piece)) for place, piece in zip(places, pieces, strict=True) if place >= 0]
    assert inside == sorted(inside)
    return copy.decode(), gone


def same(a, b):
    """NaN is not equal to itself, True is 1, and 1.0 is 1."""
    return repr(a) == repr(b)


@given(bodies())
def test_every_member_is_where_python_finds_it(text):
    problem, at, found = testing.read_body_map(text.encode())
    assert (problem, at) == ("none", len(text.encode()))
    expected = [
        (one.name.encode(), one.spelled_value.encode(), one.spelled_name.encode()) for one in members(text)
    ]
    assert [(name, value, spelled_name) for name, value, _, spelled_name, _ in found] == expected
    for name, value, kind, _, where in found:
        assert text.encode()[where:].startswith(value)
        python = json.loads(value)
        kinds = {None: "null", True: "true", False: "false"}
        if isinstance(python, (int, float)) and not isinstance(python, bool):
            assert kind == ("other" if value.strip(b"-")[:1] in (b"N", b"I") else "number")
        else:
            assert kind == kinds.get(
                python if not isinstance(python, (list, dict, str)) else "",
                {list: "array", dict: "object", str: "string"}.get(type(python)),
            )
        last = [value for other, value, *_ in found if other == name][-1]
        assert testing.find_member(text.encode(), name.decode()) == last


@given(bodies(), edits())
def test_a_copy_means_what_the_edit_says_and_each_kept_byte_stays(text, edit):
    removed, inserted = edit
    copy, gone = spliced(text, removed, inserted)
    before = pairs(text)
    expected = edited(before, removed, inserted)
    assert same(pairs(copy), expected)
    assert gone == len(before) - (len(expected) - len(inserted))
    kept = [(one.spelled_name, one.spelled_value) for one in members(copy)][len(inserted) :]
    assert kept == [
        (one.spelled_name, one.spelled_value)
        for one in members(text)
        if edited([(one.name, 0)], removed, inserted)[len(inserted) :]
    ]
    if gone == 0 and not inserted:
        assert copy == text


@given(damaged(), edits())
def test_damage_never_gives_a_wrong_meaning_nor_a_name_twice(text, edit):
    removed, inserted = edit
    made = spliced(text, removed, inserted)
    if made is None:
        assert members(text) is None, "what Python reads is read"
        return
    after = members(made[0])
    if after is None:
        return  # the worker rejects it
    names = [one.name for one in after]
    assert all(names.count(name) == 1 for name, _ in inserted)
    assert not any(name in removed for name in names if name not in dict(inserted))
    if members(text) is not None:
        assert same(pairs(made[0]), edited(pairs(text), removed, inserted))
        return
    # The damage was inside what was taken out. What was left has the spans of the map, so it means the same.
    found = testing.read_body_map(text.encode())[2]
    kept = [
        (spelled_name, value)
        for name, value, _, spelled_name, _ in found
        if name is None or edited([(name.decode(), 0)], removed, inserted)[len(inserted) :]
    ]
    assert [(one.spelled_name.encode(), one.spelled_value.encode()) for one in after[len(inserted) :]] == kept
    assert len(kept) < len(found)


@given(st.binary(max_size=80) | st.text(alphabet='{}[]",:\\u1 tn', max_size=80).map(str.encode))
def test_nothing_that_it_is_given_harms_it(data):
    problem, at, found = testing.read_body_map(data)
    assert 0 <= at <= len(data)
    assert problem == "none" or found == []
    testing.skip_json_value(data)
    testing.json_elements(data, 3)
    testing.unescaped_json(data)
