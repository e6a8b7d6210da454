"""The http room against its twins: heads, chunked bodies, tails, and writers against parsers."""

import json
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.rows import ROWS
from tests.models import chunked, http_head
from vllm_router import _core_testing as testing

TAIL = 2048


def cuts(data):
    return st.lists(st.integers(0, len(data)), max_size=8).map(sorted)


def pieces_of(data, draw):
    return [data[a:b] for a, b in pairwise([0, *draw.draw(cuts(data)), len(data)])]


def joined(*parts):
    return st.tuples(*parts).map(b"".join)


# Heads: lines that are nearly right, in any number and order.

METHODS = st.sampled_from(
    [b"GET", b"POST", b"OPTIONS", b"CONNECT", b"get", b"", b"A" * 33, b"G T", b"\x16\x03"]
)
TARGETS = st.sampled_from(
    [
        b"/",
        b"/v1/a?b=c",
        b"*",
        b"http://h/p",
        b"https://h:1",
        b"http://h?q",
        b"http://",
        b"a",
        b"/\xc3",
        b"/#",
        b"",
        b"//",
    ]
)
VERSIONS = st.sampled_from(
    [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ", b""]
)
NAMES = st.sampled_from(
    [
        b"Host",
        b"Content-Length",
        b"Transfer-Encoding",
        b"Connection",
        b"Expect",
        b"Content-Type",
        b"Upgrade",
        b"X-A",
        b"",
        b"X A",
    ]
).flatmap(lambda name: st.sampled_from([name, name.lower(), name.upper()]))
VALUES = st.sampled_from(
    [
        b"a",
        b"chunked",
        b"Chunked",
        b"gzip, chunked",
        b"5",
        b"05",
        b"5, 5",
        b"",
        b"close",
        b"keep-alive, x-a",
        b"x-a, Upgrade",
        b"WebSocket",
        b"host",
        b"100-continue",
        b"text/event-stream;a",
        b"a:1",
        b"[::1]",
        b"a b",
        b"\x80",
        b"\x00",
        b"a\rb",
        b"9" * 16,
        b"9" * 20,
    ]
)
SEPARATORS = st.sampled_from([b": ", b":", b":\t ", b" :", b": \t"])
ENDS = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"", b" \r\n", b"\r\n ", b"\r\n\r\n"])
FIELDS = st.lists(joined(NAMES, SEPARATORS, VALUES, ENDS), max_size=6).map(b"".join)
GOOD_HOST = st.sampled_from([b"Host: a\r\n", b"Host: a\r\n", b""])
BEFORE = st.sampled_from([b""] * 6 + [b"\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n", b"\r", b"\n"])
SPACE = st.sampled_from([b" "] * 8 + [b"  ", b"\t", b""])

REQUESTS = joined(
    BEFORE, METHODS, SPACE, TARGETS, SPACE, VERSIONS, ENDS, GOOD_HOST, FIELDS, ENDS, st.binary(max_size=5)
)
GOOD_LINE = st.sampled_from(
    [
        b"POST /v1 HTTP/1.1\r\nHost: a\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n",
    ]
)
NEARLY_GOOD_REQUESTS = joined(GOOD_LINE, FIELDS, st.just(b"\r\n"))
STATUS_LINES = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n"] * 4
    + [
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 204 \r\n",
        b"HTTP/1.1 304 x\r\n",
        b"HTTP/1.1 100 C\r\n",
        b"HTTP/1.1 101 S\r\n",
        b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
    ]
    + [
        b"HTTP/1.1 99 x\r\n",
        b"HTTP/1.1 200\r\n",
        b"HTTP/1.1  200 OK\r\n",
        b"HTTP/1.1 200 O\x00\r\n",
        b"ICY 200 OK\r\n",
    ]
)
RESPONSES = joined(STATUS_LINES, FIELDS, ENDS, st.binary(max_size=5))
MUTATED_ROWS = st.tuples(
    st.sampled_from([row.data for row in ROWS if len(row.data) < 2000]),
    st.integers(0, 300),
    st.binary(max_size=4),
).map(lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + len(t[2]) :])


def without_message(result):
    result.pop("message", None)
    return result


@given(
    (REQUESTS | NEARLY_GOOD_REQUESTS | MUTATED_ROWS).flatmap(
        lambda data: st.tuples(st.just(data), cuts(data))
    )
)
def test_request_heads_agree_with_the_twin_however_they_are_cut(case):
    data, where = case
    expected = http_head.parse_request(data)
    parser = testing.RequestHeadParser()
    assert without_message(parser.parse(data, cuts=where)) == expected
    assert without_message(parser.parse(data, cuts=where, move=False)) == expected


@given(
    (RESPONSES | MUTATED_ROWS).flatmap(lambda data: st.tuples(st.just(data), cuts(data))),
    st.booleans(),
    st.booleans(),
)
def test_response_heads_agree_with_the_twin_however_they_are_cut(case, to_head, to_upgrade):
    data, where = case
    expected = http_head.parse_response(data, to_head, to_upgrade)
    parser = testing.ResponseHeadParser()
    result = parser.parse(data, to_head=to_head, to_upgrade=to_upgrade, cuts=where)
    assert without_message(result) == expected


@given(REQUESTS | MUTATED_ROWS)
def test_a_refusal_stands_whatever_follows(data):
    parser = testing.RequestHeadParser()
    before = {"state": "need_more"}
    for size in range(min(len(data), 200) + 1):
        now = parser.parse(data[:size])
        assert before["state"] == "need_more" or now == before
        before = now


# Chunked bodies.

TOKENS = st.sampled_from([b"a", b"b-c", b"x.y", b"a b", b"", b"\xe9"])
QUOTED = st.sampled_from([b'"a b"', b'"\\""', b'"', b'"a', b'"\x00"', b'""'])
EXTENSIONS = st.lists(
    joined(
        st.sampled_from([b";", b" ;", b"; ", b";;"]),
        TOKENS,
        st.sampled_from([b"", b"=", b" = "]),
        TOKENS | QUOTED,
    ),
    max_size=2,
).map(b"".join)


@st.composite
def chunked_bodies(draw):
    body = b""
    for _ in range(draw(st.integers(0, 4))):
        data = draw(st.binary(min_size=1, max_size=40))
        size = draw(
            st.sampled_from([b"%x", b"%X", b"%016x", b"0%x", b"%017x", b"0x%x", b" %x", b"%x ", b"%x \t"])
        ) % len(data)
        wrong = draw(st.sampled_from([b""] * 10 + [b"x"]))
        body += size + draw(EXTENSIONS) + draw(ENDS_OF_CHUNK_LINES) + data + wrong + draw(ENDS_OF_CHUNK_LINES)
    body += draw(st.sampled_from([b"0", b"000", b"0;a", b""])) + draw(ENDS_OF_CHUNK_LINES)
    for _ in range(draw(st.integers(0, 2))):
        body += draw(
            st.sampled_from([b"A: b", b"Content-Length: 5", b"te:", b"x", b" a: b", b": b", b"C:\x01"])
        )
        body += draw(ENDS_OF_CHUNK_LINES)
    return body + draw(ENDS_OF_CHUNK_LINES) + draw(st.binary(max_size=3))


ENDS_OF_CHUNK_LINES = st.sampled_from([b"\r\n"] * 20 + [b"\n", b"\r", b" \r\n", b""])


@given(chunked_bodies().flatmap(lambda data: st.tuples(st.just(data), cuts(data))), st.booleans())
@example((b'1;a="\\"\r\nx\r\n0\r\n\r\n', []), False)
@example((b"1" + b" " * 256 + b"\r\nx\r\n0\t\r\n\r\n", []), True)
@example((b"1" + b" " * 257 + b"\r\nx\r\n0\r\n\r\n", []), True)
def test_chunked_bodies_agree_with_the_twin_however_they_are_cut(case, response):
    data, where = case
    scan = testing.scan_chunked(data, where, response=response)
    expected = chunked.decode(data, response)
    assert (scan["event"] == "end") == (expected is not None)
    if expected is not None:
        assert (scan["body"], scan["used"]) == expected


@given(chunked_bodies(), st.booleans())
def test_a_body_is_refused_at_the_first_byte_that_no_good_body_has_there(data, response):
    states = [testing.scan_chunked(data[:size], response=response)["event"] for size in range(len(data) + 1)]
    changes = [state for state, before in zip(states, [None, *states[:-1]], strict=True) if state != before]
    assert changes in (["need_more"], ["need_more", "end"], ["need_more", "bad"])


@given(st.binary(max_size=2000), st.lists(st.integers(1, 500), max_size=10), st.data())
def test_what_is_chunked_comes_back(data, sizes, draw):
    body, at = b"", 0
    for size in [*sizes, len(data) + 1]:
        if piece := data[at : at + size]:
            body += testing.write_chunk_size(len(piece)) + piece + b"\r\n"
        at += size
    body += testing.write_chunk_size(0) + b"\r\n"
    parts = testing.dechunk("chunked", 0, pieces_of(body, draw))
    assert b"".join(part for part, _, _ in parts) == data
    assert sum(used for _, used, _ in parts) == len(body)


# Writers.

WRITABLE_NAMES = st.sampled_from(
    [
        b"Accept",
        b"X-A",
        b"Content-Length",
        b"Transfer-Encoding",
        b"TE",
        b"Upgrade",
        b"X-Forwarded-For",
        b"Expect",
        b"Cookie",
    ]
)
HOP_BY_HOP = {b"transfer-encoding", b"te", b"upgrade", b"connection", b"expect", b"content-length", b"host"}


@given(
    st.lists(
        st.tuples(WRITABLE_NAMES, st.sampled_from([b"a", b"chunked", b"5", b"x, y", b"100-continue"])),
        max_size=5,
    ),
    st.sampled_from([[], [b"X-A"], [b"cookie", b"accept"]]),
    st.sampled_from(["none", "length", "chunked"]),
)
def test_a_worker_reads_one_framing_and_nothing_hop_by_hop(fields, nominated, framing):
    connection = b"Connection: " + b", ".join([b"keep-alive", *nominated])
    lines = [name + b": " + value for name, value in fields]
    data = b"\r\n".join([b"POST /v1 HTTP/1.1", b"Host: a", connection, *lines, b"", b""])
    if testing.RequestHeadParser().parse(data)["state"] != "done":
        return
    written = testing.write_upstream_head(data, framing=framing, content_length=7, client_address="9.9.9.9")
    head = http_head.parse_request(written)
    assert head["state"] == "done"
    assert head["size"] == len(written)
    assert (head["framing"], head["content_length"]) == (framing, 7 if framing == "length" else 0)
    names = [name.lower() for name, _ in head["fields"]]
    assert names.count(b"host") == 1
    gone = HOP_BY_HOP | {name.lower() for name in nominated}
    kept = [
        (name, value) for name, value in fields if name.lower() not in gone and name != b"X-Forwarded-For"
    ]
    assert [field for field in head["fields"] if field[0] in {name for name, _ in kept}] == kept


# Tails.

TRAPS = [
    '"usage":{"prompt_tokens":1}',
    '\\"usage":{"prompt_tokens":2}}',
    "data: [DONE]\n\n",
    '"error"',
    "{",
    '"',
    "\\",
    "\\\\",
]
TEXTS = st.lists(st.sampled_from(TRAPS) | st.text(max_size=20), max_size=8).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "text", "a b", "choices"]), inner)
    ),
    max_leaves=8,
)
COUNTS = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": st.integers(0, 2**40),
        "completion_tokens": st.integers(0, 2**40),
        "prompt_tokens_details": st.none()
        | st.fixed_dictionaries({"cached_tokens": st.none() | st.integers(0, 9)}),
        "total_tokens": JSON,
    },
)
DUMPS = st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])


def counts_of(usage):
    """More than 10^9 tokens are no count, and no more of a prompt is cached than it has."""
    details = (usage or {}).get("prompt_tokens_details") or {}
    found = {
        "prompt_tokens": (usage or {}).get("prompt_tokens"),
        "completion_tokens": (usage or {}).get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens"),
    }
    counts = {name: count if count is None or count <= 10**9 else None for name, count in found.items()}
    if None not in (counts["prompt_tokens"], counts["cached_tokens"]):
        counts["cached_tokens"] = min(counts["prompt_tokens"], counts["cached_tokens"])
    return counts


@given(
    st.lists(JSON, max_size=3),
    COUNTS | st.none(),
    st.lists(JSON, max_size=2),
    st.integers(0, 3000),
    DUMPS,
    st.data(),
)
def test_the_usage_of_an_answer_is_found_wherever_the_tail_begins(before, usage, after, padding, dumps, draw):
    answer = {"pad": "p" * padding, "before": before, "usage": usage, "after": after}
    body = json.dumps(answer, **dumps).encode()
    summary = testing.summarize_tail(pieces_of(body, draw))
    reached = len(body) - body.rindex(b'"usage"') < TAIL or len(body) <= TAIL
    assert {key: summary[key] for key in counts_of(None)} == counts_of(usage if reached else None)
    assert (summary["done"], summary["error"]) == (False, False)


# Each with whether it says that the server failed.
ERRORS = st.sampled_from(
    [
        ({"message": "x"}, False),
        ({"message": "x", "type": "BadRequestError", "code": 400}, False),
        ({"message": "x", "type": "InternalServerError", "code": 500}, True),
        ({"type": "api_error", "message": "x"}, True),
    ]
)


@given(st.lists(JSON, max_size=12), st.none() | COUNTS, st.booleans(), st.none() | ERRORS, st.data())
def test_a_stream_tells_its_last_usage_its_error_and_its_end(choices, usage, done, error, draw):
    events = [json.dumps({"choices": [choice], "usage": None}) for choice in choices]
    events.append(json.dumps({"choices": [], "usage": usage}))
    if error:
        events.append(json.dumps({"error": error[0]}))
    if done:
        events.append("[DONE]")
    body = "".join(f"data: {event}\n\n" for event in events).encode()
    summary = testing.summarize_tail(pieces_of(body, draw))
    # The shortest endings fit into the tail whatever came before.
    if len(events[-1 - done - (error is not None)].encode()) < 1000:
        said = {"error": error is not None, "server_error": error is not None and error[1]}
        assert summary == {**counts_of(usage), "done": done, **said}


@given(st.lists(st.binary(max_size=3000), max_size=6))
def test_no_bytes_confuse_the_tail(pieces):
    testing.summarize_tail(pieces)
    assert testing.summarize_tail([*pieces, b"\n\ndata: [DONE]\n\n"])["done"] is True
