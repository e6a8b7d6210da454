"""Malformed and odd inputs that taught the rules of docs/explanation/http_parsing.md, for tests and corpus.

`python -m tests.fuzz.rows` writes them into tests/fuzz/corpus, where the fuzzers start from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
OK = "ok"


LONGEST_IN_CORPUS = 16 * 1024  # fuzzers are slow on long inputs


@dataclass(frozen=True)
class Row:
    """One input and what has to become of it."""

    number: int
    name: str
    kind: str  # the fuzz target: request_head, response_head, body (chunked) or stream_tail; or worker_body
    data: bytes
    answer: int | str  # status (of chunked bodies always 400); 0: close without an answer
    rule: str = ""  # label in bad_requests_total{reason}

    @property
    def path(self) -> Path:
        folder = "body" if self.kind == "worker_body" else self.kind
        return CORPUS / folder / f"{self.number:02}_{self.name}"

    def __str__(self) -> str:
        return f"{self.number}-{self.name}"


def request(
    *lines: bytes, start: bytes = b"POST /v1/completions HTTP/1.1", host: bytes = b"Host: a"
) -> bytes:
    return b"".join(line + b"\r\n" for line in (start, *([host] if host else []), *lines)) + b"\r\n"


def response(*lines: bytes, start: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"".join(line + b"\r\n" for line in (start, *lines)) + b"\r\n"


def _requests() -> list[Row]:
    rows: list[Row] = []

    def add(number: int, name: str, data: bytes, answer: int | str, rule: str = "") -> None:
        rows.append(Row(number, name, "request_head", data, answer, rule))

    te = "transfer_encoding"
    add(1, "te_xchunked", request(b"Transfer-Encoding: xchunked"), 501, te)
    add(2, "te_identity", request(b"Transfer-Encoding: identity"), 501, te)
    add(3, "te_gzip_chunked", request(b"Transfer-Encoding: gzip, chunked"), 501, te)
    add(4, "te_chunked_identity", request(b"Transfer-Encoding: chunked, identity"), 400, te)
    add(4, "te_chunked_chunked", request(b"Transfer-Encoding: chunked, chunked"), 400, te)
    add(5, "te_quoted", request(b'Transfer-Encoding: "chunked"'), 400, te)
    add(5, "te_parameter", request(b"Transfer-Encoding: chunked;q=1"), 400, te)
    add(5, "te_empty", request(b"Transfer-Encoding:"), 400, te)
    add(6, "te_twice", request(b"Transfer-Encoding: x", b"Transfer-Encoding: chunked"), 400, te)
    add(6, "te_twice_chunked", request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400, te)
    add(7, "te_then_length", request(b"Transfer-Encoding: chunked", b"Content-Length: 5"), 400, te)
    add(7, "length_then_te", request(b"Content-Length: 5", b"Transfer-Encoding: chunked"), 400, te)
    add(8, "unknown_te_and_length", request(b"Transfer-Encoding: x", b"Content-Length: 5"), 400, te)
    add(9, "te_in_http10", request(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0"), 400, te)
    cl = "content_length"
    add(10, "length_list", request(b"Content-Length: 5, 5"), 400, cl)
    add(10, "length_twice", request(b"Content-Length: 5", b"Content-Length: 5"), 400, cl)
    add(11, "lengths_differ", request(b"Content-Length: 5", b"Content-Length: 6"), 400, cl)
    for name, value in [("plus", b"+5"), ("minus", b"-1"), ("hex", b"0x5"), ("empty", b""), ("two", b"5 6")]:
        add(12, f"length_{name}", request(b"Content-Length: " + value), 400, cl)
    add(12, "length_padded", request(b"Content-Length: 0000000000000005"), 400, cl)
    add(13, "length_2_63", request(b"Content-Length: %d" % 2**63), 413, cl)
    add(13, "length_2_64", request(b"Content-Length: %d" % 2**64), 400, cl)
    add(14, "space_before_colon", request(b"Content-Length : 5"), 400, "syntax")
    add(15, "folded_value", request(b"X: a", b" b"), 400, "folding")
    add(15, "folded_te", request(b"Transfer-Encoding:", b" chunked"), 400, "folding")
    add(16, "bare_lf", request(b"X: a").replace(b"\r", b""), 400, "line_ending")
    add(17, "lf_in_value", request(b"X: a\nY: b"), 400, "line_ending")
    add(17, "cr_in_value", request(b"X: a\rb"), 400, "line_ending")
    add(18, "nul_in_value", request(b"X: a\0b"), 400, "syntax")
    add(18, "control_in_value", request(b"X: a\x07b"), 400, "syntax")
    add(18, "del_in_value", request(b"X: a\x7fb"), 400, "syntax")
    add(19, "empty_name", request(b": a"), 400, "syntax")
    add(19, "no_colon", request(b"abc"), 400, "syntax")
    add(20, "leading_space", request(b"X: a", host=b" Host: a"), 400, "folding")
    add(21, "one_empty_line", b"\r\n" + request(), OK)
    add(21, "two_empty_lines", b"\r\n\r\n" + request(), OK)
    add(21, "three_empty_lines", b"\r\n\r\n\r\n" + request(), 400, "syntax")
    add(22, "two_spaces_before", request(start=b"GET  / HTTP/1.1"), 400, "syntax")
    add(22, "two_spaces_after", request(start=b"GET /  HTTP/1.1"), 400, "version")
    add(22, "tab", request(start=b"GET\t/ HTTP/1.1"), 400, "syntax")
    add(23, "space_in_target", request(start=b"GET /a b HTTP/1.1"), 400, "version")
    add(24, "utf8_in_target", request(start="GET /é HTTP/1.1".encode()), 400, "target")
    add(24, "hash_in_target", request(start=b"GET /a#b HTTP/1.1"), 400, "target")
    add(24, "nul_in_target", request(start=b"GET /a\0b HTTP/1.1"), 400, "target")
    add(25, "http09", b"GET /\r\n", 400, "version")
    add(25, "lower_case_version", request(start=b"GET / http/1.1"), 400, "version")
    add(26, "http12", request(start=b"GET / HTTP/1.2"), 505, "version")
    add(26, "http20", request(start=b"GET / HTTP/2.0"), 505, "version")
    add(26, "h2_preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "version")
    add(27, "tls_client_hello", bytes.fromhex("16030100c8010000c40303") + bytes(range(32)), 0, "tls")
    add(28, "no_host", request(host=b""), 400, "host")
    add(28, "two_hosts", request(b"Host: a"), 400, "host")
    add(28, "bad_host", request(host=b"Host: user@a/b"), 400, "host")
    add(29, "connect", request(start=b"CONNECT a:443 HTTP/1.1"), 405, "method")
    large = b"X: " + b"a" * 1000
    filler = request(*[large] * 64)
    filler = filler[:-2] + b"Y: " + b"a" * (64 * 1024 - len(filler) - 5) + b"\r\n\r\n"
    assert len(filler) == 64 * 1024
    add(42, "head_64k", filler, OK)
    add(42, "head_64k_and_1", filler[:-4] + b"a\r\n\r\n", 431, "too_large")
    add(42, "fields_100", request(*[b"X: a"] * 99), OK)
    add(42, "fields_101", request(*[b"X: a"] * 100), 431, "too_large")
    add(42, "name_256", request(b"x" * 256 + b": a"), OK)
    add(42, "name_257", request(b"x" * 257 + b": a"), 431, "too_large")
    add(42, "target_8k", request(start=b"GET /" + b"a" * 8191 + b" HTTP/1.1"), OK)
    add(42, "target_8k_and_1", request(start=b"GET /" + b"a" * 8192 + b" HTTP/1.1"), 414, "too_large")
    add(
        43,
        "connection_content_length",
        request(b"Connection: Content-Length", b"Content-Length: 5"),
        400,
        "connection",
    )
    both = (b"Connection: keep-alive", b"Connection: close")
    add(43, "keep_alive_and_close_http10", request(*both, start=b"GET / HTTP/1.0"), OK)
    add(43, "connection_host", request(b"Connection: close, host"), 400, "connection")
    add(43, "connection_17_tokens", request(b"Connection: " + b", ".join([b"a"] * 17)), 400, "connection")
    # Not in the table by number, but of the same kind.
    add(45, "expect_unknown", request(b"Expect: 200-ok"), 417, "expect")
    add(45, "expect_unknown_http10", request(b"Expect: 200-ok", start=b"GET / HTTP/1.0"), OK)
    add(46, "long_method", request(start=b"A" * 33 + b" / HTTP/1.1"), 501, "method")
    add(47, "absolute_form", request(start=b"GET http://b:1/c?d HTTP/1.1"), OK)
    add(47, "absolute_form_user", request(start=b"GET http://u@b/ HTTP/1.1"), 400, "target")
    add(47, "absolute_form_no_host", request(start=b"GET http:///c HTTP/1.1"), 400, "target")
    add(47, "asterisk_get", request(start=b"GET * HTTP/1.1"), 400, "target")
    add(47, "asterisk_options", request(start=b"OPTIONS * HTTP/1.1"), OK)
    return rows


def _chunked() -> list[Row]:
    rows: list[Row] = []

    def add(number: int, name: str, data: bytes, answer: int | str = 400) -> None:
        rows.append(Row(number, name, "body", data, answer))

    end = b"\r\nhello\r\n0\r\n\r\n"
    for name, size in [
        ("hex_prefix", b"0x5"),
        ("minus", b"-1"),
        ("plus", b"+5"),
        ("empty", b""),
        ("blank", b"5 "),
    ]:
        add(30, f"size_{name}", size + end)
    add(31, "size_17_digits", b"10000000000000000" + end)
    add(32, "size_40_zeros", b"0" * 40 + b"5" + end)
    add(33, "size_bare_lf", b"5\nhello\r\n0\r\n\r\n")
    add(33, "data_bare_lf", b"5\r\nhello\n0\r\n\r\n")
    add(34, "data_too_long", b"5\r\nhello!\r\n0\r\n\r\n")
    add(35, "extension_100k", b"5;" + b"a" * 100_000 + end)
    add(35, "extension_open_quote", b'5;a="b' + end)
    add(36, "lf_in_extension", b"5;a\nb" + end)
    add(36, "nul_in_extension", b"5;a\0b" + end)
    add(36, "lf_in_trailer", b"0\r\nA: b\nC: d\r\n\r\n")
    add(36, "nul_in_trailer", b"0\r\nA: b\0\r\n\r\n")
    add(37, "trailer_content_length", b"0\r\nContent-Length: 5\r\n\r\n")
    add(37, "trailer_no_colon", b"0\r\nabc\r\n\r\n")
    add(37, "trailer_folded", b"0\r\nA: b\r\n c\r\n\r\n")
    add(37, "trailers_8k_and_1", b"0\r\n" + b"A: " + b"b" * (8 * 1024 - 4) + b"\r\n\r\n")
    # Bodies that are in order.
    add(48, "plain", b"5" + end, OK)
    add(
        48, "upper_and_lower_digits", b"1a\r\n" + b"x" * 26 + b"\r\n1A\r\n" + b"y" * 26 + b"\r\n0\r\n\r\n", OK
    )
    add(48, "leading_zeros", b"0000000000000005" + end, OK)
    add(48, "extensions", b'5;a;b=c; d = "e\\"f" ;g' + end, OK)
    add(48, "extension_256", b"5;" + b"a" * 255 + end, OK)
    add(48, "trailers", b"0\r\nServer-Timing: a;b\r\nX:\r\n\r\n", OK)
    add(48, "trailers_8k", b"0\r\n" + b"A: " + b"b" * (8 * 1024 - 5) + b"\r\n\r\n", OK)
    add(48, "empty_with_rest", b"0\r\n\r\nHTTP/1.1 200 OK\r\n", OK)
    add(48, "size_too_large_for_a_body", b"ffffffffffffffff" + end)
    return rows


def _worker_bodies() -> list[Row]:
    end = b"\r\nhello\r\n0\r\n\r\n"
    answers: list[tuple[str, bytes, int | str]] = [
        ("size_and_blanks", b"5 \t  " + end, OK),
        ("last_size_and_blanks", b"5\r\nhello\r\n0   \r\n\r\n", OK),
        ("size_blank_extension", b"5 ; a=b" + end, OK),
        ("size_and_256_blanks", b"5" + b" " * 256 + end, OK),
        ("size_and_257_blanks", b"5" + b" " * 257 + end, 400),
        ("size_with_a_blank_inside", b"0 5" + end, 400),
        ("blank_before_size", b" 5" + end, 400),
        ("extension_and_blank", b"5;a " + end, 400),
        ("blank_and_bare_lf", b"5 \nhello\r\n0\r\n\r\n", 400),
    ]
    return [Row(51, name, "worker_body", data, answer) for name, data, answer in answers]


def _responses() -> list[Row]:
    rows: list[Row] = []

    def add(number: int, name: str, data: bytes, answer: int | str, rule: str = "") -> None:
        rows.append(Row(number, name, "response_head", data, answer, rule))

    te = "transfer_encoding"
    add(38, "both_framings", response(b"Transfer-Encoding: chunked", b"Content-Length: 5"), 502, te)
    add(38, "unknown_coding", response(b"Transfer-Encoding: x"), 502, te)
    add(39, "gzip_chunked", response(b"Transfer-Encoding: gzip, chunked"), 502, te)
    add(40, "status_2000", response(start=b"HTTP/1.1 2000 OK"), 502, "status")
    add(40, "status_099", response(start=b"HTTP/1.1 099 OK"), 502, "status")
    add(40, "status_600", response(start=b"HTTP/1.1 600 OK"), 502, "status")
    add(40, "bare_lf", response(b"A: b").replace(b"\r", b""), 502, "line_ending")
    add(40, "garbage", b"SSH-2.0-OpenSSH_9.2p1\r\n", 502, "syntax")
    add(
        41,
        "no_content_and_5_bytes",
        response(b"Content-Length: 5", start=b"HTTP/1.1 204 No Content") + b"hello",
        OK,
    )
    add(
        44,
        "switching_protocols",
        response(b"Upgrade: h2c", start=b"HTTP/1.1 101 Switching Protocols"),
        502,
        "status",
    )
    add(
        44,
        "switching_to_websocket_unasked",
        response(b"Upgrade: websocket", b"Connection: Upgrade", start=b"HTTP/1.1 101 Switching Protocols"),
        502,
        "status",
    )
    add(49, "continue", b"HTTP/1.1 100 Continue\r\n\r\n", OK)
    add(49, "no_reason", response(start=b"HTTP/1.1 200 "), OK)
    add(49, "no_blank_behind_the_status", response(b"Content-Length: 0", start=b"HTTP/1.1 200"), OK)
    add(49, "te_in_http10", response(b"Transfer-Encoding: chunked", start=b"HTTP/1.0 200 OK"), 502, te)
    both = (b"Content-Length: 0", b"Connection: keep-alive", b"Connection: close")
    add(49, "keep_alive_and_close_http10", response(*both, start=b"HTTP/1.0 200 OK"), OK)
    add(49, "two_equal_lengths", response(b"Content-Length: 5", b"Content-Length: 5"), OK)
    add(49, "two_lengths", response(b"Content-Length: 5", b"Content-Length: 6"), 502, "content_length")
    add(49, "lengths_5_and_05", response(b"Content-Length: 5", b"Content-Length: 05"), 502, "content_length")
    add(49, "length_list", response(b"Content-Length: 5, 5"), 502, "content_length")
    both = (b"Content-Length: 5", b"Content-Length: 5", b"Transfer-Encoding: chunked")
    add(38, "both_framings_twice", response(*both), 502, te)
    add(49, "huge_length", response(b"Content-Length: 1000000000000000"), 502, "content_length")
    add(49, "fields_101", response(*[b"X: a"] * 101), 502, "too_large")
    return rows


def _tails() -> list[Row]:
    usage = b'"usage":{"prompt_tokens":7,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":3}}'
    trap = rb'{"choices":[{"text":"\"usage\":{\"prompt_tokens\":1}"}],"usage":null}'
    bodies = {
        "openai_stream": b'data: {"choices":[]}\n\ndata: {"choices":[],' + usage + b"}\n\ndata: [DONE]\n\n",
        "openai_json": b'{"id":"1","choices":[{"message":{"content":"x"}}],' + usage + b"}",
        "crlf": b"data: {" + usage + b"}\r\n\r\ndata: [DONE]\r\n\r\n",
        "anthropic": b'event: a\ndata: {"usage":{"output_tokens":5}}\n\nevent: b\ndata: {}\n\n',
        "sglang": b'{"text":"x","meta_info":{"prompt_tokens":7,"completion_tokens":5,"cached_tokens":3}}',
        "error_event": b'data: {}\n\ndata: {"error":{"message":"boom","code":500}}\n\ndata: [DONE]\n\n',
        "error_json": b'{"object":"error","error":{"message":"boom"}}',
        "usage_in_text": trap,
        "two_data_lines": b'data: {"usage":{"prompt_tokens":1,\ndata: "completion_tokens":2}}\n\n',
        "nested": b'{"usage":{"a":[[{"b":null}]],"prompt_tokens":1}}',
    }
    return [Row(50, name, "stream_tail", data, OK) for name, data in bodies.items()]


ROWS = [*_requests(), *_chunked(), *_worker_bodies(), *_responses(), *_tails()]


def write_corpus() -> None:
    for row in ROWS:
        if len(row.data) > LONGEST_IN_CORPUS:
            continue
        row.path.parent.mkdir(parents=True, exist_ok=True)
        row.path.write_bytes(row.data)


if __name__ == "__main__":
    write_corpus()
