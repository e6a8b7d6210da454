"""Chunked bodies by regular expressions; slow and obviously right. The twin of cpp/http/chunked.h."""

from __future__ import annotations

import re

MAX_EXTENSION = 256
MAX_TRAILERS = 8 * 1024
MAX_CHUNK = 10**15 - 1

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e]|\\[\t\x20-\x7e])*"'
_EXTENSION = rb"[\t ]*;[\t ]*%b(?:[\t ]*=[\t ]*(?:%b|%b))?" % (_TOKEN, _TOKEN, _QUOTED)
_SIZE = rb"([0-9a-fA-F]{1,16})"
# A worker may put blanks behind the size; a client may not.
_SIZE_LINE = re.compile(_SIZE + rb"(?![\t ])((?:%b)*)\r\n" % _EXTENSION)
_WORKERS_SIZE_LINE = re.compile(_SIZE + rb"((?:%b)*|[\t ]*)\r\n" % _EXTENSION)
_TRAILER = re.compile(rb"(%b):[\t\x20-\x7e\x80-\xff]*\r\n" % _TOKEN)
_FORBIDDEN = {
    *(b"content-length", b"transfer-encoding", b"host", b"connection", b"proxy-connection"),
    *(b"trailer", b"te", b"upgrade", b"authorization"),
}


def decode(data: bytes, response: bool = False) -> tuple[bytes, int] | None:
    """The body and the bytes used, if `data` starts with a whole and good chunked body, else None."""
    body, at = b"", 0
    while True:
        line = (_WORKERS_SIZE_LINE if response else _SIZE_LINE).match(data, at)
        if not line or len(line[2]) > MAX_EXTENSION:
            return None
        at = line.end()
        size = int(line[1], 16)
        if size > MAX_CHUNK:
            return None
        if size == 0:
            break
        if data[at + size : at + size + 2] != b"\r\n":
            return None
        body += data[at : at + size]
        at += size + 2
    begin = at
    while trailer := _TRAILER.match(data, at):
        if trailer[1].lower() in _FORBIDDEN:
            return None
        at = trailer.end()
    if at - begin > MAX_TRAILERS or data[at : at + 2] != b"\r\n":
        return None
    return body, at + 2
