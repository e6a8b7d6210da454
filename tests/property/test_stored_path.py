"""Paths of what is stored against their slow twin: any object, whole or cut anywhere."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models import stored_path as models
from vllm_router import _core_testing as testing

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "resp_1", "x" * 257]
)
VALUE = st.recursive(
    TEXT | st.integers(-5, 5) | st.none() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "a", "response"]), inner)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(["id", "response", "previous_response_id", "conversation", "object"])
BODY = st.dictionaries(NAMES, VALUE, max_size=5)


def decoded(found):
    return None if found is None else found.decode()


@given(BODY)
def test_of_a_request(body):
    assert decoded(testing.continued_path(models.written(body))) == models.continued(body)


@given(BODY, st.booleans())
def test_of_a_whole_response(body, event_stream):
    text = models.written(body)
    if event_stream:
        text = (
            b"event: response.created\r\n: a comment\r\ndata: "
            + text
            + b'\n\ndata: {"response": {"id": "no"}}'
        )
        assert decoded(testing.created_id(text, True)) == models.of_event(body)
    else:
        assert decoded(testing.created_id(text, False)) == models.of(body)


@given(BODY, st.booleans(), st.data())
def test_of_the_beginning_of_one(body, event_stream, data):
    """What is found in a beginning is what the whole says; nothing is ever taken for it."""
    text = models.written(body)
    cut = text[: data.draw(st.integers(0, len(text)))]
    if event_stream:
        assert decoded(testing.created_id(b"data: " + cut, True)) in (None, models.of_event(body))
    else:
        assert decoded(testing.created_id(cut, False)) in (None, models.of(body))


PATHS = st.sampled_from(["/v1/responses/", "/v1/conversations/"])


@given(
    st.text("/v1responsesca{}%é", max_size=30) | st.builds("{}{}{}".format, PATHS, TEXT, st.just("") | PATHS)
)
def test_of_a_path(path):
    assert testing.stored_path_of(path) == models.path(path)
