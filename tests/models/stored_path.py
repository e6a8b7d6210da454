"""The slow twin of cpp/routing/stored_path.h."""

from __future__ import annotations

import json
from typing import Any


def path(text: str) -> str:
    parts = text.split("/")
    if parts[:3] not in (["", "v1", "responses"], ["", "v1", "conversations"]) or len(parts) < 4:
        return ""
    is_operation = text in ("/v1/responses/compact", "/v1/responses/input_tokens")
    return "/".join(parts[:4]) if 0 < len(parts[3].encode()) <= 256 and not is_operation else ""


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value.encode()) <= 256 else None


def continued(body: dict[str, Any]) -> str | None:
    response = _id(body.get("previous_response_id"))
    if response is not None:
        return f"/v1/responses/{response}"
    named = body.get("conversation")
    conversation = _id(named.get("id") if isinstance(named, dict) else named)
    return None if conversation is None else f"/v1/conversations/{conversation}"


def of(body: dict[str, Any]) -> str | None:
    return _id(body.get("id"))


def of_event(body: dict[str, Any]) -> str | None:
    response = body.get("response")
    return _id(response.get("id")) if isinstance(response, dict) else None


def written(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()
