"""The slow twin of cpp/routing/response_id.h."""

from __future__ import annotations

import json
from typing import Any


def path(text: str) -> str:
    parts = text.split("/")
    if parts[:3] != ["", "v1", "responses"] or len(parts) < 4 or len(parts[3].encode()) > 256:
        return ""
    return parts[3]


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value.encode()) <= 256 else None


def previous(body: dict[str, Any]) -> str | None:
    return _id(body.get("previous_response_id"))


def of(body: dict[str, Any]) -> str | None:
    return _id(body.get("id"))


def of_event(body: dict[str, Any]) -> str | None:
    response = body.get("response")
    return _id(response.get("id")) if isinstance(response, dict) else None


def written(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()
