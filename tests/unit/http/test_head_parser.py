"""cpp/http/head_parser.h: each row of the table of refusals, real heads, and every way to split the bytes."""

import random

import pytest

from tests.fuzz.rows import OK, ROWS, request, response
from tests.growth import assert_linear
from tests.models import http_head
from vllm_router import _core_testing as testing

REQUESTS = [row for row in ROWS if row.kind == "request_head"]
RESPONSES = [row for row in ROWS if row.kind == "response_head"]

OPENAI_PYTHON = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:30000\r\nAccept-Encoding: gzip, deflate\r\n"
    b"Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
    b"User-Agent: OpenAI/Python 1.51.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 1.51.0\r\n"
    b"X-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n"
    b"X-Stainless-Runtime-Version: 3.11.2\r\nAuthorization: Bearer sk-123\r\nX-Stainless-Async: false\r\n"
    b"x-stainless-retry-count: 0\r\nContent-Length: 141\r\n\r\n"
)
CURL = (
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost:30000\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n"
    b"Content-Type: application/json\r\nContent-Length: 2097152\r\nExpect: 100-continue\r\n\r\n"
)
CURL_HTTP10 = (
    b"GET /health HTTP/1.0\r\nHost: localhost:30000\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n"
)
CURL_PROXIED = (
    b"GET http://router.example:8080/v1/models?limit=1 HTTP/1.1\r\nHost: router.example:8080\r\n"
    b"User-Agent: curl/7.88.1\r\nAccept: */*\r\nProxy-Connection: Keep-Alive\r\n\r\n"
)
CURL_CHUNKED = (
    b"POST /generate HTTP/1.1\r\nHost: [::1]:30000\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n"
    b"Transfer-Encoding: chunked\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n"
)
CHROME = (
    b"GET /v1/models HTTP/1.1\r\nHost: localhost:30000\r\nConnection: keep-alive\r\nPragma: no-cache\r\n"
    b'sec-ch-ua: "Chromium";v="130", "Google Chrome";v="130", "Not?A";v="99"\r\nsec-ch-ua-mobile: ?0\r\n'
    b'sec-ch-ua-platform: "Linux"\r\nUpgrade-Insecure-Requests: 1\r\n'
    b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0\r\n"
    b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nSec-Fetch-Site: none\r\n"
    b"Sec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n"
    b"Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: de-DE,de;q=0.9\r\nCookie: a=b; c=d\r\n\r\n"
)
FIREFOX_UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost:30000\r\nUser-Agent: Mozilla/5.0 (X11; rv:132.0) Gecko/20100101\r\n"
    b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
UVICORN_STREAM = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 04 Nov 2024 10:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
UVICORN_JSON = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 04 Nov 2024 10:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: 512\r\n"
    b"content-type: application/json\r\n\r\n"
)
PYTHON_HTTP_SERVER = (
    b"HTTP/1.0 200 OK\r\nServer: SimpleHTTP/0.6 Python/3.11.2\r\nDate: Mon, 04 Nov 2024 10:00:00 GMT\r\n"
    b"Content-type: text/html; charset=utf-8\r\nContent-Length: 336\r\n\r\n"
)

CLIENTS = [OPENAI_PYTHON, CURL, CURL_HTTP10, CURL_PROXIED, CURL_CHUNKED, CHROME, FIREFOX_UPGRADE]
SERVERS = [UVICORN_STREAM, UVICORN_JSON, PYTHON_HTTP_SERVER]


@pytest.fixture
def parser():
    return testing.RequestHeadParser()


@pytest.fixture
def responses():
    return testing.ResponseHeadParser()


def without_message(result):
    """The twin has no sentences for clients; every refusal of ours has one."""
    if result["state"] == "bad":
        assert result.pop("message").endswith(".")
    return result


def cuts_of(data, rng):
    """All ways to cut a small input in two, some of a large one, and small pieces of every size up to 9."""
    ends = range(len(data)) if len(data) < 1000 else sorted(rng.sample(range(len(data)), 30))
    yield from ([end] for end in ends)
    if len(data) < 1000:
        yield from (list(range(size, len(data), size)) for size in range(1, 10))


@pytest.mark.parametrize("row", REQUESTS, ids=str)
def test_each_row_of_the_table_gets_its_answer(parser, row):
    result = parser.parse(row.data)
    if row.answer == OK:
        assert result["state"] == "done"
    else:
        assert (result["state"], result.get("status"), result.get("rule")) == ("bad", row.answer, row.rule)
    assert without_message(result) == http_head.parse_request(row.data)


@pytest.mark.parametrize("row", RESPONSES, ids=str)
def test_each_row_about_responses_gets_its_answer(responses, row):
    result = responses.parse(row.data)
    if row.answer == OK:
        assert result["state"] == "done"
    else:
        assert (result["state"], result.get("status"), result.get("rule")) == ("bad", row.answer, row.rule)
    assert without_message(result) == http_head.parse_response(row.data)


@pytest.mark.parametrize("row", REQUESTS, ids=str)
def test_the_answer_to_a_row_does_not_depend_on_the_split(parser, row, rng):
    whole = parser.parse(row.data)
    for cuts in cuts_of(row.data, rng):
        assert parser.parse(row.data, cuts=cuts) == whole, f"cut at {cuts}"


@pytest.mark.parametrize("row", RESPONSES, ids=str)
def test_the_answer_to_a_response_row_does_not_depend_on_the_split(responses, row, rng):
    whole = responses.parse(row.data)
    for cuts in cuts_of(row.data, rng):
        assert responses.parse(row.data, cuts=cuts) == whole, f"cut at {cuts}"


@pytest.mark.parametrize("head", CLIENTS, ids=lambda head: head.split(b"\r\n")[0].decode())
def test_heads_of_real_clients_are_accepted_however_they_are_split(parser, head, rng):
    whole = parser.parse(head + b"and the body")
    assert whole["state"] == "done"
    assert whole["size"] == len(head)
    assert whole == http_head.parse_request(head + b"and the body")
    for cuts in cuts_of(head, rng):
        assert parser.parse(head, cuts=cuts) == whole, f"cut at {cuts}"
        assert parser.parse(head, cuts=cuts, move=False) == whole, f"cut at {cuts} in place"


@pytest.mark.parametrize("head", SERVERS, ids=lambda head: head.split(b"\r\n")[1].decode())
def test_heads_of_real_servers_are_accepted_however_they_are_split(responses, head, rng):
    whole = responses.parse(head + b"and the body")
    assert whole["state"] == "done"
    assert whole["size"] == len(head)
    assert whole == http_head.parse_response(head + b"and the body")
    for cuts in cuts_of(head, rng):
        assert responses.parse(head, cuts=cuts) == whole, f"cut at {cuts}"
        assert responses.parse(head, cuts=cuts, move=False) == whole, f"cut at {cuts} in place"


def test_every_incomplete_head_needs_more(parser):
    for size in range(len(OPENAI_PYTHON)):
        assert parser.parse(OPENAI_PYTHON[:size]) == {"state": "need_more"}


def test_the_openai_client_is_understood(parser):
    head = parser.parse(OPENAI_PYTHON)
    assert head["method"] == b"POST"
    assert head["target"] == head["path"] == b"/v1/chat/completions"
    assert head["authority"] == b"127.0.0.1:30000"
    assert (head["framing"], head["content_length"], head["keep_alive"]) == ("length", 141, True)
    assert head["connection_tokens"] == []
    assert len(head["fields"]) == 16
    assert head["fields"][3] == (b"Accept", b"application/json")


def test_curl_asks_before_it_sends_a_large_body(parser):
    assert parser.parse(CURL)["expects_continue"] is True
    assert parser.parse(CURL.replace(b"HTTP/1.1", b"HTTP/1.0"))["expects_continue"] is False


def test_http10_closes_unless_it_asks_to_keep_alive(parser):
    assert parser.parse(CURL_HTTP10)["keep_alive"] is False
    assert parser.parse(CURL_HTTP10.replace(b"Accept: */*", b"Connection: Keep-Alive"))["keep_alive"] is True
    both = CURL_HTTP10.replace(b"Accept: */*", b"Connection: keep-alive, close")
    assert parser.parse(both)["keep_alive"] is False


def test_http10_needs_no_host(parser):
    head = parser.parse(b"GET / HTTP/1.0\r\n\r\n")
    assert (head["state"], head["authority"]) == ("done", b"")


def test_connection_names_fields_that_stay_behind(parser):
    head = parser.parse(FIREFOX_UPGRADE)
    assert head["connection_tokens"] == [b"Upgrade"]
    assert head["keep_alive"] is True
    several = parser.parse(request(b"Connection: X-A,, close ,\tx-b", b"Connection: x-c"))
    assert several["connection_tokens"] == [b"X-A", b"x-b", b"x-c"]
    assert several["keep_alive"] is False


@pytest.mark.parametrize(
    ("target", "authority", "left", "path", "query"),
    [
        (b"http://b:1/c?d=e", b"b:1", b"/c?d=e", b"/c", b"d=e"),
        (b"HTTPS://[::1]:1/", b"[::1]:1", b"/", b"/", b""),
        (b"http://b", b"b", b"/", b"/", b""),
        (b"http://b?q", b"b", b"?q", b"/", b"q"),
    ],
)
def test_the_authority_of_an_absolute_target_replaces_host(parser, target, authority, left, path, query):
    head = parser.parse(request(start=b"GET %b HTTP/1.1" % target))
    assert (head["authority"], head["target"], head["path"], head["query"]) == (authority, left, path, query)
    assert head["fields"] == [(b"Host", b"a")]


def test_query_and_path_are_told_apart_at_the_first_question_mark(parser):
    head = parser.parse(request(start=b"GET /a?b?c HTTP/1.1"))
    assert (head["path"], head["query"], head["target"]) == (b"/a", b"b?c", b"/a?b?c")


def test_blanks_around_values_are_no_part_of_them(parser):
    fields = parser.parse(request(b"A:b", b"C: \t d e\t ", b"F:", b"G: \t "))["fields"]
    assert fields[1:] == [(b"A", b"b"), (b"C", b"d e"), (b"F", b""), (b"G", b"")]


def test_values_may_hold_latin_1_and_tabs(parser):
    value = bytes([9, *range(0x21, 0x7F), *range(0x80, 0x100)]) + b"x"
    assert parser.parse(request(b"A: " + value))["fields"][1] == (b"A", value.lstrip(b"\t"))


@pytest.mark.parametrize("at", range(20))
@pytest.mark.parametrize("byte", [0, 1, 8, 10, 11, 13, 31, 127])
def test_a_control_byte_anywhere_in_a_value_is_refused(parser, at, byte):
    value = b"\x80" * at + bytes([byte]) + b"\t" * (19 - at) + b"x"
    assert parser.parse(request(b"A: b" + value))["status"] == 400


def test_garbage_is_refused_with_its_first_byte(parser, responses):
    assert parser.parse(b"\x00")["rule"] == "syntax"
    assert parser.parse(b"\x16") | {"message": ""} == {
        "state": "bad",
        "status": 0,
        "rule": "tls",
        "message": "",
    }
    assert responses.parse(b"<")["rule"] == "syntax"


def test_an_endless_target_is_refused_before_its_end(parser):
    assert parser.parse(b"GET /" + b"a" * 9000)["status"] == 414


def test_an_endless_head_is_refused_as_soon_as_it_cannot_fit(parser):
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: "
    head += b"a" * (64 * 1024 - len(head) - 1)
    assert parser.parse(head) == {"state": "need_more"}
    assert parser.parse(head + b"a")["status"] == 431


def test_what_follows_the_head_is_left_alone(parser):
    for rest in [b"", b"\r\n", b"GET", bytes(range(256)), b"a" * 70_000]:
        assert parser.parse(request() + rest)["size"] == len(request())


def test_a_parser_that_refused_one_head_accepts_the_next(parser):
    for row in REQUESTS:
        parser.parse(row.data)
        assert parser.parse(OPENAI_PYTHON) == http_head.parse_request(OPENAI_PYTHON)


@pytest.mark.parametrize(
    ("to_head", "start", "framing"),
    [
        (False, b"HTTP/1.1 200 OK", "length"),
        (True, b"HTTP/1.1 200 OK", "none"),
        (False, b"HTTP/1.1 204 No Content", "none"),
        (False, b"HTTP/1.1 304 Not Modified", "none"),
        (False, b"HTTP/1.1 103 Early Hints", "none"),
        (False, b"HTTP/1.1 500 Oops", "length"),
    ],
)
def test_some_responses_have_no_body_whatever_they_say(responses, to_head, start, framing):
    head = responses.parse(response(b"Content-Length: 5", start=start), to_head=to_head)
    assert (head["framing"], head["keep_alive"]) == (framing, True)


def test_a_response_without_length_ends_with_the_connection(responses):
    head = responses.parse(response())
    assert (head["framing"], head["keep_alive"]) == ("until_close", False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"text/event-stream", True),
        (b"Text/Event-Stream ; charset=utf-8", True),
        (b"text/event-streams", False),
        (b"application/json", False),
        (b"application/json; x=text/event-stream", False),
    ],
)
def test_event_streams_are_told_by_their_media_type(responses, value, expected):
    assert responses.parse(response(b"content-type: " + value))["event_stream"] is expected


def test_a_head_that_arrives_byte_by_byte_costs_linear_time(parser):
    def head(size):
        lines = [b"X-Field: " + b"v" * 600] * ((size - 100) // 611)
        return request(*lines)

    def parse(data):
        assert parser.parse(data, cuts=range(1, len(data)), move=False)["state"] == "done"

    assert_linear(parse, lambda n: head(n * 3_750))


def test_many_small_mutations_agree_with_the_twin(parser, responses, rng):
    def mutated(data):
        data = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            byte = rng.choice(b"\r\n :\t,;/?#*a1\x00\x7f\x80")
            action = rng.randrange(3)
            if action == 0:
                data[at] = byte
            elif action == 1:
                data.insert(at, byte)
            else:
                del data[at : at + rng.randint(1, 3)]
        return bytes(data)

    for _ in range(3000):
        data = mutated(rng.choice(CLIENTS))
        cuts = sorted(rng.sample(range(len(data)), rng.randint(0, 5)))
        assert without_message(parser.parse(data, cuts=cuts)) == http_head.parse_request(data), (data, cuts)
        data = mutated(rng.choice(SERVERS))
        to_head = rng.random() < 0.2
        result = without_message(responses.parse(data, to_head=to_head, cuts=cuts))
        assert result == http_head.parse_response(data, to_head), (data, cuts, to_head)


def test_mutated_heads_that_are_accepted_are_few_but_exist(parser):
    # Guards the test above against a mutator that only makes garbage, or none.
    rng = random.Random(1)
    accepted = 0
    for _ in range(500):
        data = bytearray(CURL)
        data[rng.randrange(len(data))] = rng.choice(b"\r\n :\ta1")
        accepted += parser.parse(bytes(data))["state"] == "done"
    assert 50 < accepted < 450


SWITCH = (b"Connection: Upgrade", b"Upgrade: websocket")


@pytest.mark.parametrize(
    ("lines", "start", "told"),
    [
        (SWITCH, b"GET /x HTTP/1.1", True),
        ((b"connection: keep-alive, UPGRADE", b"UPGRADE:  WebSocket "), b"GET /x HTTP/1.1", True),
        ((b"Connection: close, Upgrade", b"Upgrade: websocket"), b"GET /x HTTP/1.1", True),
        (SWITCH, b"GET /x HTTP/1.0", False),
        (SWITCH, b"POST /x HTTP/1.1", False),
        (SWITCH, b"get /x HTTP/1.1", False),
        ((*SWITCH, b"Content-Length: 0"), b"GET /x HTTP/1.1", False),
        ((*SWITCH, b"Transfer-Encoding: chunked"), b"GET /x HTTP/1.1", False),
        ((*SWITCH, b"Upgrade: h2c"), b"GET /x HTTP/1.1", False),
        ((*SWITCH, b"Upgrade: websocket"), b"GET /x HTTP/1.1", False),
        ((b"Connection: Upgrade", b"Upgrade: websocket, h2c"), b"GET /x HTTP/1.1", False),
        ((b"Connection: Upgrade", b"Upgrade: websocket/13"), b"GET /x HTTP/1.1", False),
        ((b"Connection: Upgrade", b"Upgrade: h2c"), b"GET /x HTTP/1.1", False),
        ((b"Connection: keep-alive", b"Upgrade: websocket"), b"GET /x HTTP/1.1", False),
        ((b"Upgrade: websocket",), b"GET /x HTTP/1.1", False),
        ((b"Connection: Upgrade",), b"GET /x HTTP/1.1", False),
    ],
)
def test_only_a_plain_websocket_upgrade_is_one(parser, lines, start, told):
    """mending row 17: other upgrades are never passed on, so that no worker switches to them."""
    result = parser.parse(request(*lines, start=start))
    assert (result["state"], result["websocket"]) == ("done", told)


@pytest.mark.parametrize(
    ("lines", "version", "state"),
    [
        (SWITCH, b"1.1", "done"),
        (SWITCH, b"1.0", "bad"),
        ((b"Connection: Upgrade", b"Upgrade: h2c"), b"1.1", "bad"),
        ((b"Connection: Upgrade",), b"1.1", "bad"),
        ((b"Upgrade: websocket",), b"1.1", "bad"),
    ],
)
def test_a_worker_may_switch_to_what_it_was_asked_for_and_to_nothing_else(responses, lines, version, state):
    data = response(*lines, start=b"HTTP/" + version + b" 101 Switching Protocols")
    result = responses.parse(data + b"bytes", to_upgrade=True)
    assert result["state"] == state
    assert responses.parse(data)["rule"] == "status"
    if state == "done":
        assert (result["size"], result["framing"]) == (len(data), "none")
