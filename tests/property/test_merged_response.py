"""Merged responses against their slow twin: what they mean, and that all other bytes of decode's stay."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models import merged_response as twin
from vllm_router import _core_testing as testing

ROUTES = ["completions", "chat", "generate"]
TOKENS = st.sampled_from(["a", " b", "é", "\U0001f600", '"', "\\", "]", "", "\n"])
FIGURES = st.sampled_from([-1.5, -0.25, -9999.0, 0])
ODD = st.sampled_from([None, 7, -1, 1.5, True, "x", [], {}, [[]], [None], [1, 2]])
OTHERS = st.dictionaries(st.sampled_from(["a", "id", "text", "é]"]), ODD, max_size=3)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:"), (",", " : ")])


def lists_of(tokens, figures, has_prompt):
    offsets, at = [], 0
    for token in tokens:
        offsets.append(at)
        at += len(token)
    lists = {
        "text_offset": offsets,
        "token_logprobs": list(figures),
        "tokens": list(tokens),
        "top_logprobs": [{token: figure} for token, figure in zip(tokens, figures, strict=True)],
    }
    if has_prompt and tokens:
        lists["token_logprobs"][0] = lists["top_logprobs"][0] = None
    return lists


@st.composite
def completions(draw):
    def drawn(like, count):
        return draw(st.lists(like, min_size=count, max_size=count))

    prompt_size, size = draw(st.integers(1, 4)), draw(st.integers(0, 4))
    prompt, generated = drawn(TOKENS, prompt_size), drawn(TOKENS, size)
    figures, others = drawn(FIGURES, prompt_size), drawn(FIGURES, size)
    echo, again, listed = (draw(st.booleans()) for _ in range(3))
    first = lists_of([*prompt, "!"], [*figures, -1.0], True) if echo else lists_of(["!"], [-1.0], False)
    if echo and again:
        then = lists_of(prompt + generated, figures + others, True)
    else:
        then = lists_of(generated, others, False)
    prompt_logprobs = [None, *({"7": {"logprob": figure}} for figure in figures[1:])]
    ours = {"index": 0, "logprobs": first, "prompt_logprobs": prompt_logprobs}
    theirs = {"index": 0, "logprobs": then, **draw(OTHERS)}
    if listed:
        theirs["prompt_logprobs"] = prompt_logprobs if again else None
    return {"choices": [ours]}, {"choices": [theirs], **draw(OTHERS)}


@st.composite
def chats(draw):
    prompt = draw(st.none() | st.lists(st.none() | st.just({"7": {"logprob": -1.5}}), max_size=3))
    theirs = draw(OTHERS)
    if draw(st.booleans()):
        theirs["prompt_logprobs"] = draw(st.none() | st.just([None]))
    return {"prompt_logprobs": prompt}, theirs


INPUTS = st.lists(st.tuples(FIGURES | st.none(), st.integers(1, 2), TOKENS).map(list), max_size=3)
INFO = st.fixed_dictionaries({}, optional={name: INPUTS | st.none() for name in twin.INPUTS})


@st.composite
def generated(draw):
    pairs = draw(st.lists(st.tuples(INFO, INFO, OTHERS), min_size=1, max_size=2))
    ours = [{"meta_info": info} for info, _, _ in pairs]
    theirs = [{"meta_info": {**info, **others}, "text": "x"} for _, info, others in pairs]
    return (ours, theirs) if draw(st.booleans()) else (ours[0], theirs[0])


PAIRS = {"completions": completions(), "chat": chats(), "generate": generated()}


def places(value, path=()):
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))
        else:
            yield (*path, key)


def replaced(value, path, by):
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


@st.composite
def pairs(draw, damaged):
    route = draw(st.sampled_from(ROUTES))
    both = list(draw(PAIRS[route]))
    if damaged:
        who = draw(st.integers(0, 1))
        path = draw(st.sampled_from(list(places(both[who]))))
        both[who] = replaced(both[who], path, draw(ODD))
    written = [json.dumps(one, separators=draw(SEPARATORS), ensure_ascii=draw(st.booleans())) for one in both]
    return (route, *written)


def compare(route, prefill, decode):
    expected = twin.merged(route, prefill, decode)
    result = testing.merge_responses(route, prefill.encode(), decode.encode())
    assert (None if result is None else json.loads(result)) == expected
    if result is not None:
        assert twin.skeleton(result.decode()) == twin.skeleton(decode)
    return expected


@given(pairs(damaged=False))
def test_a_merged_response_means_what_its_twin_says(pair):
    assert compare(*pair) is not None


@given(pairs(damaged=True))
def test_a_response_of_another_shape_is_told_as_its_twin_tells_it(pair):
    compare(*pair)


@given(pairs(damaged=False), st.data())
def test_a_cut_response_leaves_decodes_as_it_is(pair, data):
    route, *both = pair
    who = data.draw(st.integers(0, 1))
    both[who] = both[who][: data.draw(st.integers(0, len(both[who]) - 1))]
    assert testing.merge_responses(route, *(one.encode() for one in both)) is None


@given(pairs(damaged=False), st.data())
def test_a_damaged_byte_never_makes_a_response_that_is_no_json(pair, data):
    route, *both = pair
    who = data.draw(st.integers(0, 1))
    damaged = bytearray(both[who].encode())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.sampled_from(b'"[]{},:\\x0\xff '))
    texts = [one.encode() for one in both]
    texts[who] = bytes(damaged)
    result = testing.merge_responses(route, *texts)
    if result is not None:
        json.loads(result)
        assert all(json.loads(text) is not None for text in texts)


@given(
    st.sampled_from([*ROUTES, "batch_chat", "responses", "messages", "inference_generate", "extra", "other"]),
    st.lists(
        st.tuples(
            st.sampled_from(["stream", "echo", "logprobs", "prompt_logprobs", "return_logprob", "a"]), ODD
        ),
        max_size=4,
    ),
)
def test_which_requests_want_it(route, members):
    request = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members) + "}"
    assert testing.wants_merge(route, request.encode()) == twin.wants_merge(route, request)


COUNTS = st.sampled_from([0, 1, 15, None, -1, 1.5, "7", 2**53, 2**53 + 1])
DETAILS = st.none() | st.fixed_dictionaries({}, optional={"cached_tokens": COUNTS, "a": COUNTS}) | st.just(7)
USAGE = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": COUNTS,
        "completion_tokens": COUNTS,
        "total_tokens": COUNTS,
        "prompt_tokens_details": DETAILS,
    },
)
REPORTS = st.fixed_dictionaries({"id": st.just("x")}, optional={"usage": USAGE | st.none()})
USAGE_NAMES = {"prompt_tokens", "total_tokens", "prompt_tokens_details"}


@given(REPORTS, REPORTS, SEPARATORS)
def test_a_merged_usage_means_what_its_twin_says(ours, theirs, separators):
    prefill, decode = (json.dumps(one, separators=separators) for one in (ours, theirs))
    result = testing.merge_usage(prefill.encode(), decode.encode())
    assert (None if result is None else json.loads(result)) == twin.usage_merged(prefill, decode)
    if result is not None:
        assert twin.skeleton(result.decode(), USAGE_NAMES) == twin.skeleton(decode, USAGE_NAMES)
