"""The recordings in tests/data/agents: what coding agents sent, byte for byte, and whose session it is.

    for request in recorded("codex_0.171.0"):
        request.body                    # exactly the agent's bytes
        session_of(request)             # equal for all turns of one conversation

tests/data/agents/README.md describes the files.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "agents"
AGENTS = tuple(sorted(path.stem for path in FOLDER.glob("*.jsonl")))

# Where an agent names its session; of several, the one that subagents do not share with their parent.
SESSION_HEADERS = ("thread-id", "x-session-id", "x-claude-code-session-id")


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One request, or one message of a WebSocket."""

    agent: str
    scenario: str
    connection: int | None
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    wire_bytes: int
    """Length of the body."""
    answer: str | None
    """What the model was let do; None where none was asked."""

    def header(self, name: str) -> str | None:
        """By its name in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    @functools.cached_property
    def json(self) -> dict[str, Any]:
        """The body. It has none: TypeError."""
        parsed: dict[str, Any] = json.loads(self.body)  # type: ignore[arg-type]
        return parsed


def recorded(agent: str, scenario: str | None = None) -> list[Recorded]:
    """Those of an agent, in order; of one scenario if it is named."""
    values: list[Any] = []
    requests = []

    def expand(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {"$"}:
                return values[value["$"]]
            return {name: expand(member) for name, member in value.items()}
        return [expand(member) for member in value] if isinstance(value, list) else value

    for line in (FOLDER / f"{agent}.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "is" in entry:
            values.append(expand(entry["is"]))
        elif scenario in (None, entry["scenario"]):
            requests.append(_request(agent, entry, expand))
    return requests


def _request(agent: str, entry: dict[str, Any], expand: Any) -> Recorded:
    body = None
    if "body" in entry:
        blanks = (", ", ": ") if entry.get("blanks") else (",", ":")
        text = json.dumps(
            expand(entry["body"]), ensure_ascii=bool(entry.get("ascii")), separators=blanks, allow_nan=False
        )
        body = text.encode()
    return Recorded(
        agent=agent,
        scenario=entry["scenario"],
        connection=entry.get("connection"),
        method=entry["method"],
        path=entry["path"],
        headers=tuple((name, value) for name, value in expand(entry.get("headers", []))),
        body=body,
        wire_bytes=entry.get("wire_bytes", 0),
        answer=entry.get("answer"),
    )


def has_prompt(request: Recorded) -> bool:
    """An engine would compute it."""
    return request.method == "POST" and not request.path.partition("?")[0].endswith("count_tokens")


def session_of(request: Recorded) -> tuple[str, ...]:
    """The conversation it is a turn of: a subagent has one of its own, a resumed one goes on.

    By the ids that the agent sends; a title that is made under a session's id is apart. Without ids, by what
    stands before the model's first call of a tool; in a conversation without tools, before its first words.
    """
    for name in SESSION_HEADERS:
        session = request.header(name)
        if session is not None:
            subagent = request.header("x-claude-code-agent-id") or ""
            is_title = request.agent.startswith("opencode") and "tools" not in request.json
            return session, subagent, "title" if is_title else ""
    opening = []
    has_tools = bool(request.json.get("tools"))
    for message in request.json["messages"]:
        if message["role"] == "assistant" and (message.get("tool_calls") or not has_tools):
            break
        opening.append(message)
    return (json.dumps(opening),)
