"""The slow twin of cpp/routing/request_fields.h and session_key.h, over Python's own json.

Headers are pairs in the order in which they were sent; the hash is passed in.
"""

import json
from collections.abc import Callable, Sequence

ALIASES = ("x-claude-code-session-id", "x-dynamo-session-id", "x-smg-routing-key", "session-id")
BLANKS = " \t\r\n\v\f"
MAX_BODY = 8 * 1024 * 1024


def ranked_headers(order: str, headers: Sequence[str], aliases: bool, compat: bool) -> list[str]:
    if headers:
        return [name.lower() for name in headers]
    fourth, fifth = "x-request-id", "x-correlation-id"
    if compat or order == "reference":
        fourth, fifth = fifth, fourth
    return [
        "x-session-id",
        *(ALIASES if aliases and not compat else ()),
        *("x-user-id", "x-tenant-id", fourth, fifth, "x-trace-id"),
    ]


def header_key(headers: Sequence[tuple[str, str]], ranked: Sequence[str]) -> str:
    for name in ranked:
        values = [value for sent, value in headers if sent.lower() == name]
        if values and values[0].strip(" \t"):
            return f"header:{name}:{values[0].strip(' 	')}"
    return ""


def identity(value: object) -> str | None:
    """A string with something in it that UTF-8 can say, or an integer; nothing else names anybody."""
    if isinstance(value, str):
        encodable = not any(0xD800 <= ord(char) <= 0xDFFF for char in value)
        return value if value.strip(BLANKS) and encodable else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


def request_fields(body: bytes) -> dict[str, object] | None:
    """Of a body that is valid JSON; None when it is not an object."""
    value = json.loads(body)
    if not isinstance(value, dict) or len(body) > MAX_BODY:
        return None
    params = value.get("session_params")
    model = value.get("model")
    stream = value.get("stream")

    def count(member: object) -> int | None:
        whole = isinstance(member, int) and not isinstance(member, bool)
        return member if whole and 0 <= member < 2**64 else None

    priority = value.get("priority")
    if not isinstance(priority, int) or isinstance(priority, bool) or not -(2**31) <= priority < 2**31:
        priority = None
    limit = count(value.get("max_completion_tokens"))
    return {
        "session_params_session_id": identity(params.get("session_id")) if isinstance(params, dict) else None,
        "user": identity(value.get("user")),
        "session_id": identity(value.get("session_id")),
        "user_id": identity(value.get("user_id")),
        "model": model if isinstance(model, str) and (not model or identity(f"x{model}")) else None,
        "stream": stream if isinstance(stream, bool) else None,
        "priority": priority,
        "max_tokens": limit if limit is not None else count(value.get("max_tokens")),
    }


def body_key(
    fields: dict[str, object], path: str, compat: bool, digest: Callable[[bytes], int]
) -> str | None:
    session = fields["session_params_session_id"]
    if session is not None:
        assert isinstance(session, str)
        if not (compat and path == "/v1/chat/completions"):
            return f"session:{session}"
        raw = session.encode()
        return f"request:{session}" if len(raw) <= 100 else f"request_hash:{digest(raw):016x}"
    for member, kind in (("user", "user"), ("session_id", "session"), ("user_id", "user")):
        if fields[member] is not None:
            return f"{kind}:{fields[member]}"
    return None


def find(
    *,
    headers: Sequence[tuple[str, str]] = (),
    path: str = "",
    session_id: str | None = None,
    body: bytes | None = None,
    prompt: bytes | None = None,
    token_ids: Sequence[int] | None = None,
    ranked: Sequence[str],
    compat: bool = False,
    digest: Callable[[bytes], int],
) -> tuple[str, str]:
    """(key, source) of a request whose body, if there is one, is valid JSON."""
    if session_id is not None and session_id.strip(" \t"):
        return f"header:x-session-id:{session_id.strip(' 	')}", "session"
    key = header_key(headers, ranked)
    if key:
        return key, "session"
    if body:
        fields = request_fields(body)
        found = body_key(fields, path, compat, digest) if fields is not None else None
        if found is not None:
            return found, "session"
    for raw in (body, prompt, b"".join(i.to_bytes(4, "little") for i in token_ids or ())):
        if raw:
            return f"request_hash:{digest(raw):016x}", "body"
    return "", "missing"
