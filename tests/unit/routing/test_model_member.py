"""cpp/routing/model_member.h: the model that a body names, as Python's json reads it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router._core_testing import find_model_in_form, find_model_member

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.sampled_from(
    ['"', "\\", '\\"', "}", "]", '{"model":"no"}', "model", ",", ":"]
)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("model"), inner, max_size=3),
    max_leaves=8,
)
BLANK = st.sampled_from(["", " ", "\n\t", "\r\n"])


def spelled(text, draw):
    """A JSON string, some of whose characters are escaped."""
    if draw(st.booleans()):
        return json.dumps(text, ensure_ascii=draw(st.booleans()))
    return '"' + "".join("".join(f"\\u{unit:04X}" for unit in units(c)) for c in text) + '"'


def units(character):
    data = character.encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]


@given(st.data())
def test_of_every_object_it_finds_what_python_finds(data):
    members = data.draw(st.lists(st.tuples(TEXT | st.just("model"), VALUE), max_size=6))
    gap = lambda: data.draw(BLANK)  # noqa: E731
    texts = []
    for name, value in members:
        text = spelled(value, data.draw) if isinstance(value, str) else json.dumps(value)
        texts.append(f"{gap()}{spelled(name, data.draw)}{gap()}:{gap()}{text}{gap()}")
    body = (f"{gap()}{{" + ",".join(texts) + f"{gap() if not texts else ''}}}{gap()}").encode()
    expected = json.loads(body).get("model")
    kind, name, offset, length, whole = find_model_member(body)
    assert whole
    if expected is None or expected == "":
        assert kind == "missing"
    elif isinstance(expected, str):
        assert (kind, name.decode()) == ("name", expected)
        assert json.loads(body[offset : offset + length]) == expected
        edited = json.loads(body[:offset] + b'"other"' + body[offset + length :])
        assert (
            edited == {**json.loads(body), "model": "other"}
            or any(
                value != value
                for _, value in members  # NaN is not equal to itself
            )
            or "NaN" in body.decode()
        )
    else:
        assert kind == "other"


@given(st.binary(max_size=200) | TEXT.map(str.encode))
def test_no_bytes_break_it(body):
    kind, _, offset, length, _ = find_model_member(body)
    assert kind in ("no object", "missing", "name", "other")
    assert offset + length <= len(body)


@given(st.integers(0, 60))
def test_a_body_that_is_cut_off_gives_what_its_beginning_shows(size):
    body = b'{"a": ["}", {"model": 1}], "model": "m", "messages": [{"content": "x"}]}'[:size]
    kind, name, _, _, whole = find_model_member(body)
    assert not whole
    assert (kind == "name") == (size > body.find(b'"m"') + 2 and b'"m"' in body)
    assert name in (b"", b"m")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[]",
        b'"model"',
        b"null",
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        b"model=a",
        b"1",
        b"{",
        b'{"model"',
    ],
)
def test_what_is_no_object_names_no_model(body):
    kind, *_, whole = find_model_member(body)
    assert (kind in ("no object", "missing"), whole) == (True, False)


@pytest.mark.parametrize(
    "value", [b'"\\ud800"', b'"\\x"', b'"\\u12"', b"1", b"true", b'["a"]', b'{"model": "a"}']
)
def test_a_value_that_is_no_name_is_another(value):
    assert find_model_member(b'{"model": ' + value + b"}")[0] == "other"


def test_a_name_of_a_megabyte_is_read_whole():
    name = b"a\\n" * 300_000
    assert find_model_member(b'{"model": "' + name + b'"}')[1] == b"a\n" * 300_000


FORM = (
    b'--x"y\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n\r\nname="model"\r\n'
    b'--x"y\r\ncontent-disposition: form-data; name="model"\r\nContent-Type: text/plain\r\n\r\nwhisper\r\n'
    b'--x"y--\r\n'
).replace(b'x"y', b"xy")


@pytest.mark.parametrize("boundary", ["boundary=xy", 'BOUNDARY="xy"', "charset=utf-8; boundary=xy"])
def test_the_part_of_a_form(boundary):
    kind, name, offset, length, whole = find_model_in_form(f"multipart/form-data; {boundary}", FORM)
    assert (kind, name, whole) == ("name", b"whisper", True)
    assert FORM[offset : offset + length] == b"whisper"


@given(
    st.integers(0, len(FORM)),
    st.sampled_from(["", "multipart/form-data", "multipart/form-data; boundary=xy"]),
)
def test_a_form_that_is_cut_off_or_has_no_boundary(size, content_type):
    kind, name, *_ = find_model_in_form(content_type, FORM[:size])
    assert name in (b"", b"whisper")
    assert name == b"" or "boundary" in content_type
    assert kind in ("no object", "missing", "name")


def test_a_byte_order_mark_hides_no_model():
    """Row 18: the offset is that in the body, since an alias is replaced there."""
    body = b'\xef\xbb\xbf{"mod\\u0065l": "m"}'
    kind, name, offset, length, whole = find_model_member(body)
    assert (kind, name, whole) == ("name", b"m", True)
    assert body[offset : offset + length] == b'"m"'
