"""What adapters read of the objects in which hosts hold a request."""

from __future__ import annotations

from typing import Any


def plain(value: Any) -> Any:
    """Pydantic models, also in lists, as dicts without members that are None; anything else as it is."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True)
    return [plain(item) for item in value] if isinstance(value, list) else value
