"""CloseJson against its slow twin: any object, written in any way, cut anywhere."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models.truncated_json import beginning
from vllm_router import _core_testing as testing

TEXTS = st.text(max_size=8) | st.sampled_from(['"', "\\", "é", "😀", "a\nb", "\\u0041"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(
    st.dictionaries(TEXTS, VALUES, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.floats(0, 1),
)
def test_what_was_complete_stays_and_strings_are_closed(value, ascii_only, indent, share):
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    cut = data[: max(1, round(share * len(data)))]
    keep, closing = testing.close_json(cut)
    whole = cut[:keep] + closing
    assert json.loads(whole, object_pairs_hook=list) == beginning(cut)
    assert testing.close_json(whole) == (len(whole), b""), "what is whole stays as it is"


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\u1 t', max_size=60).map(str.encode))
def test_nothing_that_it_is_given_harms_it(data):
    closed = testing.close_json(data)
    if closed is not None:
        keep, closing = closed
        assert 0 < keep <= len(data)
        assert set(closing) <= set(b'"]}')
