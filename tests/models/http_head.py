"""The rules of HTTP heads (docs/explanation/http_parsing.md), one after the other; slow and obviously right.

The twin of cpp/http/head_parser.h. `parse_request` and `parse_response` see what has arrived so far and say
"state" need_more, or bad ("status", "rule"), or done (the members of cpp/http/head.h).
"""

from __future__ import annotations

import re
from typing import Any

MAX_HEAD = 64 * 1024
MAX_FIELDS = 100
MAX_TARGET = 8 * 1024
MAX_NAME = 256
MAX_METHOD = 32
MAX_TOKENS = 16
MAX_LENGTH = 10**15 - 1
MAX_REQUEST_LINE = MAX_METHOD + 1 + MAX_TARGET + 1 + len(b"HTTP/1.1\r\n")

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
AUTHORITY = re.compile(rb"[A-Za-z0-9\-._~%!$&'()*+;=:\[\]]*")
VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
FORBIDDEN_TOKENS = {b"host", b"content-length", b"transfer-encoding", b"authorization"}


class BadError(Exception):
    def __init__(self, status: int, rule: str) -> None:
        self.status, self.rule = status, rule


class NeedMoreError(Exception):
    pass


def parse_request(data: bytes) -> dict[str, Any]:
    return _result(_Request, data)


def parse_response(data: bytes, to_head: bool = False, to_upgrade: bool = False) -> dict[str, Any]:
    result = _result(_Response, data, to_head, to_upgrade)
    if result["state"] == "bad":
        result["status"] = 502
    return result


def _result(kind: type[_Head], data: bytes, *args: Any) -> dict[str, Any]:
    try:
        return {"state": "done", **kind(data, *args).parse()}
    except NeedMoreError:
        return {"state": "need_more"}
    except BadError as bad:
        return {"state": "bad", "status": bad.status, "rule": bad.rule}


class _Head:
    empty_lines_allowed = 0
    first_line_limit = MAX_HEAD

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.fields: list[tuple[bytes, bytes]] = []

    def values(self, name: bytes) -> list[bytes]:
        return [value for field, value in self.fields if field.lower() == name]

    def check_start(self, text: bytes) -> None:
        raise NotImplementedError

    def check_first_line(self, line: bytes) -> None:
        raise NotImplementedError

    def parse(self) -> dict[str, Any]:
        text = self.data[:MAX_HEAD]
        begin = 0
        for _ in range(self.empty_lines_allowed):
            if text[begin:] == b"\r":
                raise NeedMoreError
            if text[begin : begin + 2] == b"\r\n":
                begin += 2
            elif text[begin : begin + 1] == b"\r":
                raise BadError(400, "line_ending")
        if begin == len(text):
            raise NeedMoreError
        self.check_start(text[begin:])
        first = True
        while True:
            end = text.find(b"\n", begin)
            if first and (len(text) if end < 0 else end) - begin >= self.first_line_limit:
                self.check_first_line(text[begin : begin + self.first_line_limit])
                raise AssertionError("a first line as long as that is refused")
            if end < 0:
                if len(self.data) >= MAX_HEAD:
                    raise BadError(431, "too_large")
                raise NeedMoreError
            line = text[begin:end]
            if not line.endswith(b"\r"):
                raise BadError(400, "line_ending")
            line = line[:-1]
            begin = end + 1
            if first:
                self.check_first_line(line)
                first = False
            elif line:
                self.add_field(line)
            else:
                return {"size": begin, **self.finish()}

    def add_field(self, line: bytes) -> None:
        if line[:1] in (b" ", b"\t"):
            raise BadError(400, "folding")
        match = re.fullmatch(rb"(%b+):(.*)" % TOKEN, line, re.DOTALL)
        if not match:
            raise BadError(400, "syntax")
        name, value = match[1], match[2].strip(b" \t")
        if len(name) > MAX_NAME:
            raise BadError(431, "too_large")
        if not VALUE.fullmatch(value):
            raise BadError(400, "line_ending" if b"\r" in value else "syntax")
        if len(self.fields) == MAX_FIELDS:
            raise BadError(431, "too_large")
        self.fields.append((name, value))
        if name.lower() == b"connection":
            self.check_connection()

    def asks_for_websocket(self) -> bool:
        upgrades = [value.lower() for value in self.values(b"upgrade")]
        return upgrades == [b"websocket"] and b"upgrade" in [t.lower() for t in self.connection_tokens()]

    def connection_tokens(self) -> list[bytes]:
        tokens = [token.strip(b" \t") for value in self.values(b"connection") for token in value.split(b",")]
        return [token for token in tokens if token]

    def check_connection(self) -> None:
        for number, token in enumerate(self.connection_tokens()):
            if (
                not re.fullmatch(TOKEN + b"+", token)
                or number >= MAX_TOKENS
                or token.lower() in FORBIDDEN_TOKENS
            ):
                raise BadError(400, "connection")

    def lengths(self) -> list[bytes]:
        return self.values(b"content-length")

    def framing(self, minor_version: int, default: str) -> tuple[str, int]:
        encodings, lengths = self.values(b"transfer-encoding"), self.lengths()
        if len(encodings) > 1 or (encodings and (lengths or minor_version == 0)):
            raise BadError(400, "transfer_encoding")
        if encodings:
            codings = [coding.strip(b" \t").lower() for coding in encodings[0].split(b",")]
            if codings == [b"chunked"]:
                return "chunked", 0
            clean = all(re.fullmatch(TOKEN + b"+", coding) for coding in codings)
            raise BadError(501 if clean and b"chunked" not in codings[:-1] else 400, "transfer_encoding")
        if not lengths:
            return default, 0
        if len(lengths) > 1 or not re.fullmatch(rb"[0-9]+", lengths[0]) or int(lengths[0]) >= 2**64:
            raise BadError(400, "content_length")
        if int(lengths[0]) > MAX_LENGTH:
            raise BadError(413, "content_length")
        if len(lengths[0]) > 15:
            raise BadError(400, "content_length")
        return "length", int(lengths[0])

    def finish(self) -> dict[str, Any]:
        raise NotImplementedError

    def common(self, minor_version: int, framing: str, length: int) -> dict[str, Any]:
        tokens = [token.lower() for token in self.connection_tokens()]
        keep_alive = b"close" not in tokens and (minor_version == 1 or b"keep-alive" in tokens)
        return {
            "fields": self.fields,
            "connection_tokens": [
                t for t in self.connection_tokens() if t.lower() not in (b"close", b"keep-alive")
            ],
            "minor_version": minor_version,
            "framing": framing,
            "content_length": length,
            "keep_alive": keep_alive and framing != "until_close",
        }


class _Request(_Head):
    empty_lines_allowed = 2
    first_line_limit = MAX_REQUEST_LINE

    def check_start(self, text: bytes) -> None:
        method = re.match(TOKEN + b"*", text)[0]  # type: ignore[index]
        if len(method) > MAX_METHOD:
            raise BadError(501, "method")
        if method == text or (method and text[len(method) :].startswith(b" ")):
            return
        if text[0] == 0x16:
            raise BadError(0, "tls")
        raise BadError(400, "syntax")

    def check_first_line(self, line: bytes) -> None:
        self.method, _, rest = line.partition(b" ")
        target, space, version = rest.partition(b" ")
        if len(target) > MAX_TARGET:
            raise BadError(414, "too_large")
        if not target:
            raise BadError(400, "syntax")
        if not re.fullmatch(rb"[\x21\x22\x24-\x7e]+", target):
            raise BadError(400, "target")
        if not space or not re.fullmatch(rb"HTTP/[0-9]\.[0-9]", version):
            raise BadError(400, "version")
        if version not in (b"HTTP/1.0", b"HTTP/1.1"):
            raise BadError(505, "version")
        self.minor_version = int(version[-1:])
        if self.method == b"CONNECT":
            raise BadError(405, "method")
        self.authority = b""
        self.target = target
        if not target.startswith(b"/") and (self.method, target) != (b"OPTIONS", b"*"):
            match = re.fullmatch(rb"https?://([^/?]+)(.*)", target, re.IGNORECASE)
            if not match or not AUTHORITY.fullmatch(match[1]):
                raise BadError(400, "target")
            self.authority, self.target = match[1], match[2] or b"/"

    def finish(self) -> dict[str, Any]:
        framing, length = self.framing(self.minor_version, "none")
        hosts = self.values(b"host")
        if len(hosts) > 1 or (not hosts and self.minor_version == 1):
            raise BadError(400, "host")
        host = hosts[0] if hosts else b""
        if not AUTHORITY.fullmatch(host):
            raise BadError(400, "host")
        expectations = {value.lower() for value in self.values(b"expect")} if self.minor_version else set()
        if expectations - {b"100-continue"}:
            raise BadError(417, "expect")
        path, _, query = self.target.partition(b"?")
        return {
            **self.common(self.minor_version, framing, length),
            "method": self.method,
            "target": self.target,
            "path": path or b"/",
            "query": query,
            "authority": self.authority or host,
            "expects_continue": bool(expectations),
            "via": self.values(b"via"),
            "websocket": self.method == b"GET"
            and self.minor_version == 1
            and framing == "none"
            and self.asks_for_websocket(),
        }


class _Response(_Head):
    def __init__(self, data: bytes, to_head: bool, to_upgrade: bool) -> None:
        super().__init__(data)
        self.to_head = to_head
        self.to_upgrade = to_upgrade

    def lengths(self) -> list[bytes]:
        return list(dict.fromkeys(super().lengths()))  # equal ones count once

    def check_start(self, text: bytes) -> None:
        if text[:7] != b"HTTP/1."[: len(text)]:
            raise BadError(502, "syntax")

    def check_first_line(self, line: bytes) -> None:
        match = re.fullmatch(rb"HTTP/1\.([01]) ([0-9]{3})(?: ([\t\x20-\x7e\x80-\xff]*))?", line)
        if not match or not 100 <= int(match[2]) <= 599:
            raise BadError(502, "status")
        if int(match[2]) == 101 and not self.to_upgrade:
            raise BadError(502, "status")
        self.minor_version, self.status, self.reason = int(match[1]), int(match[2]), match[3] or b""

    def finish(self) -> dict[str, Any]:
        framing, length = self.framing(self.minor_version, "until_close")
        if self.status == 101 and not (self.minor_version == 1 and self.asks_for_websocket()):
            raise BadError(502, "status")
        if self.to_head or self.status < 200 or self.status in (204, 304):
            framing, length = "none", 0
        types = self.values(b"content-type")
        media_type = types[-1].partition(b";")[0].strip(b" \t").lower() if types else b""
        return {
            **self.common(self.minor_version, framing, length),
            "status": self.status,
            "reason": self.reason,
            "event_stream": media_type == b"text/event-stream",
        }
