"""Request fields and session keys against tests/models/session_key.py, which asks Python's own json."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models import session_key as slow
from vllm_router import _core_testing as testing

CHAT = "/v1/chat/completions"
WANTED = [
    "model",
    "stream",
    "user",
    "session_id",
    "user_id",
    "session_params",
    "conversation_id",
    "prompt_cache_key",
    "conversation",
    "metadata",
    "max_tokens",
    "max_completion_tokens",
]

blanks = st.text(st.sampled_from(" \t\r\n"), max_size=2)
strings = st.one_of(
    st.text(max_size=12), st.sampled_from(["", " ", "\v\f", "\u00a0", "\ud800", "x" * 101, '"user":"m"'])
)
numbers = st.one_of(
    st.integers(),
    st.sampled_from([0, -1, 2**63, 2**64 - 1, 2**64, 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, strings),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(WANTED), strings), inner, max_size=4),
    ),
    max_leaves=12,
)


@st.composite
def member_names(draw, name):
    """A spelling of a member's name: some of its characters may be written as escapes."""
    escaped = draw(st.sets(st.integers(0, max(0, len(name) - 1)), max_size=2))
    return "".join(
        f"\\u{ord(char):04x}" if i in escaped and ord(char) < 0x10000 else json.dumps(char)[1:-1]
        for i, char in enumerate(name)
    )


@st.composite
def bodies(draw):
    """JSON objects as bytes: members in any order, repeated, with escapes and blanks anywhere they may be."""

    def text(value, depth):
        if isinstance(value, dict) and depth < 2:
            return write([*value.items()], depth + 1)
        return json.dumps(value, ensure_ascii=draw(st.booleans()) or has_surrogate(value))

    def write(members, depth):
        pieces = []
        for name, value in members:
            spelled = f'{draw(blanks)}"{draw(member_names(name))}"{draw(blanks)}'
            pieces.append(f"{spelled}:{draw(blanks)}{text(value, depth)}{draw(blanks)}")
        return "{" + (",".join(pieces) or draw(blanks)) + "}"

    session_params = st.dictionaries(st.sampled_from(["session_id", "other"]), values, max_size=2)
    user_ids = st.one_of(session_params.map(json.dumps), strings.map("user_1_session_{}".format), values)
    metadata = st.dictionaries(st.sampled_from(["user_id", "other"]), user_ids, max_size=2)
    conversation = st.dictionaries(st.sampled_from(["id", "other"]), values, max_size=2)
    member = st.one_of(
        st.tuples(st.sampled_from(WANTED), st.one_of(strings, numbers, values)),
        st.tuples(st.just("session_params"), session_params),
        st.tuples(st.just("metadata"), metadata),
        st.tuples(st.just("conversation"), conversation),
        st.tuples(strings, values),
    )
    return (draw(blanks) + write(draw(st.lists(member, max_size=8)), 0) + draw(blanks)).encode()


def has_surrogate(value):
    return any(0xD800 <= ord(char) <= 0xDFFF for char in json.dumps(value, ensure_ascii=False))


header_names = st.sampled_from(
    [
        *("X-Session-ID", "x-session-id", "X-USER-ID", "x-tenant-id", "X-Request-ID", "x-correlation-id"),
        *(
            "x-trace-id",
            "session-id",
            "X-Claude-Code-Session-Id",
            "session_id",
            "x-session-affinity",
            "x-smg-routing-key",
            "x-shop",
            "accept",
            "",
        ),
    ]
)
header_values = st.one_of(
    st.sampled_from(["", " ", "\t"]), st.text(st.characters(max_codepoint=0x7F), max_size=6)
)
headers = st.lists(st.tuples(header_names, header_values), max_size=6)
options = st.fixed_dictionaries(
    {
        "order": st.sampled_from(["seed", "reference"]),
        "headers": st.sampled_from([[], ["X-Shop"], ["x-shop", "X-Trace-ID", "x-session-id"]]),
        "aliases": st.booleans(),
        "compat": st.booleans(),
        "fallback": st.sampled_from(["opening", "body"]),
        "digest_function": st.sampled_from(["furc", "xxh3"]),
    }
)


@given(bodies(), st.booleans())
def test_fields_are_those_that_json_finds(body, padded):
    assert testing.request_fields(body, padded) == slow.request_fields(body)


@given(values)
def test_only_an_object_is_an_object(value):
    body = json.dumps(value).encode()
    fields = testing.request_fields(body)
    assert fields == slow.request_fields(body)
    assert (fields is not None) == isinstance(value, dict)


@given(st.binary(max_size=40), st.booleans())
def test_bytes_of_any_kind_are_survived(body, padded):
    testing.request_fields(body, padded)


@given(bodies(), st.data())
def test_a_body_cut_anywhere_is_no_object(body, data):
    whole = body.rstrip()
    length = data.draw(st.integers(0, len(whole) - 1))
    assert testing.request_fields(whole[:length], data.draw(st.booleans())) is None


@given(
    options,
    headers,
    st.sampled_from(["", CHAT, "/v1/completions"]),
    st.one_of(st.none(), strings.filter(lambda text: not has_surrogate(text))),
    st.one_of(st.none(), st.just(b""), bodies()),
    st.one_of(st.none(), st.binary(max_size=5)),
    st.one_of(st.none(), st.lists(st.integers(0, 2**32 - 1), max_size=3)),
)
def test_the_key_is_the_twins(chosen, sent, path, session_id, body, prompt, token_ids):
    function = {"furc": testing.HashFunction.furc, "xxh3": testing.HashFunction.xxh3}[
        chosen["digest_function"]
    ]
    request = {"headers": sent, "path": path}
    given_parts = {"session_id": session_id, "body": body, "prompt": prompt, "token_ids": token_ids}
    request |= {name: part for name, part in given_parts.items() if part is not None}
    ranked = slow.ranked_headers(chosen["order"], chosen["headers"], chosen["aliases"], chosen["compat"])
    expected = slow.find(
        **request,
        ranked=ranked,
        compat=chosen["compat"],
        digest=lambda raw: testing.ring_hash(function, raw),
    )
    finder = testing.SessionKeyFinder(**chosen)
    assert finder.find(**request)[:2] == expected
    assert finder.find_in_headers(sent) == slow.header_key(sent, ranked)


@given(options, headers, st.randoms(use_true_random=False))
def test_order_of_different_headers_changes_nothing(chosen, sent, random):
    first = {name.lower(): (name, value) for name, value in reversed(sent)}
    distinct = list(first.values())
    shuffled = random.sample(distinct, len(distinct))
    finder = testing.SessionKeyFinder(**chosen)
    assert finder.find_in_headers(distinct) == finder.find_in_headers(shuffled)


@given(st.dictionaries(strings, values, max_size=5).filter(lambda value: not has_surrogate(value)))
def test_a_dict_is_written_as_json_writes_it(value):
    expected = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert testing.json_text(value).decode() == expected
