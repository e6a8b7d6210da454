"""The slow twin of cpp/routing/request_fields.h and session_key.h, over Python's own json.

Headers are pairs in the order in which they were sent; the hash is passed in.
"""

import json
from collections.abc import Callable, Sequence

ALIASES = (
    *("x-claude-code-session-id", "session-id", "session_id", "x-session-affinity", "x-opencode-session"),
    *("conversation_id", "x-dynamo-session-id", "x-smg-routing-key"),
)
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


def session_in(user_id: str | None) -> str | None:
    """Of Claude Code's metadata.user_id: JSON as text, earlier a text of three parts."""
    if user_id is None:
        return None
    if user_id.lstrip(" \t\r\n").startswith("{"):
        try:
            members = json.loads(user_id)
        except ValueError:
            return None
        session = members.get("session_id")
        return identity(session) if isinstance(session, str) else None
    before, separator, session = user_id.rpartition("_session_")
    return session if separator and before.startswith("user") and session.strip(BLANKS) else None


def request_fields(body: bytes) -> dict[str, object] | None:
    """Of a body that is valid JSON; None when it is not an object."""
    value = json.loads(body)
    if not isinstance(value, dict) or len(body) > MAX_BODY:
        return None
    params, metadata = value.get("session_params"), value.get("metadata")
    conversation = value.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
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
        "conversation_id": identity(value.get("conversation_id")),
        "prompt_cache_key": identity(value.get("prompt_cache_key")),
        "conversation": identity(conversation),
        "metadata_session_id": session_in(identity(metadata.get("user_id")))
        if isinstance(metadata, dict)
        else None,
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
    ranks = [("user", "user"), ("session_id", "session"), ("user_id", "user")]
    if not compat:
        agents = ("metadata_session_id", "prompt_cache_key", "conversation", "conversation_id")
        ranks = [*((member, "session") for member in agents), *ranks]
    for member, kind in ranks:
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
