"""A second run of a request, compared with what the client has; the twin of continuation/rerun_verifier.h.

By Python's json, with whole texts where the product keeps digests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

LETTERS = {"content": "c", "reasoning": "r", "refusal": "f", "tool_name": "n", "tool_arguments": "a"}
OF_CALLS = ("tool_name", "tool_arguments")
Channel = tuple[str, int]


class DiffersError(Exception):
    """The stream cannot go on with this run; the argument is the problem's name."""


@dataclass
class Transcript:
    said: bytes = b""
    last: Channel | None = None
    calls: int = 0

    def with_text(self, channel: Channel, text: str) -> bytes:
        """The whole text, as if this had been added."""
        if not text:
            return self.said
        kind, call = channel
        number = str(call) if kind in OF_CALLS else ""
        mark = b"" if channel == self.last else b"\xff" + (LETTERS[kind] + number).encode() + b"\xfe"
        return self.said + mark + text.encode()

    def add(self, channel: Channel, text: str) -> None:
        self.said = self.with_text(channel, text)
        if text:
            self.last = channel
            if channel[0] in OF_CALLS:
                self.calls = max(self.calls, channel[1] + 1)


@dataclass
class Place:
    """Where an event has a text."""

    channel: Channel
    holders: list[tuple[dict[str, Any], str]]  # more than one if it is there under two names

    @property
    def text(self) -> str:
        holder, name = self.holders[0]
        return str(holder[name])

    def leave(self, rest: str) -> None:
        for holder, name in self.holders:
            holder[name] = rest


def places_of(choice: dict[str, Any]) -> list[Place]:
    """In the order in which parsers let texts out."""
    if "text" in choice:
        return [Place(("content", 0), [(choice, "text")])] if choice["text"] is not None else []
    delta = choice.get("delta") or {}
    places = []
    reasoning = [(delta, name) for name in ("reasoning", "reasoning_content") if delta.get(name) is not None]
    if reasoning:
        places.append(Place(("reasoning", 0), reasoning))
    places += [
        Place((name, 0), [(delta, name)]) for name in ("content", "refusal") if delta.get(name) is not None
    ]
    for call in delta.get("tool_calls") or []:
        function = call.get("function") or {}
        for name, kind in (("name", "tool_name"), ("arguments", "tool_arguments")):
            if function.get(name) is not None:
                places.append(Place((kind, call["index"]), [(function, name)]))
    return places


@dataclass
class Choice:
    transcript: Transcript = field(default_factory=Transcript)
    ended: bool = False


class Delivered:
    """What the client has."""

    def __init__(self) -> None:
        self.choices: dict[int, Choice] = {}
        self.head: dict[str, Any] = {}
        self.without_choice = 0  # events

    def add(self, event: dict[str, Any]) -> None:
        if not self.head:
            self.head = {name: event.get(name) for name in ("id", "created", "model")}
        self.without_choice += not event["choices"]
        for said in event["choices"]:
            choice = self.choices.setdefault(said.get("index", 0), Choice())
            for place in places_of(said):
                choice.transcript.add(place.channel, place.text)
            choice.ended = choice.ended or said.get("finish_reason") is not None


class Verifier:
    def __init__(self, delivered: Delivered) -> None:
        self.delivered = delivered
        self.runs: dict[int, Transcript] = {index: Transcript() for index in delivered.choices}
        self.begun: set[int] = set()
        self.without_choice = 0

    def caught_up(self, index: int) -> bool:
        known = self.delivered.choices.get(index)
        return known is None or len(self.runs[index].said) >= len(known.transcript.said)

    @property
    def all_caught_up(self) -> bool:
        return all(self.caught_up(index) for index in self.delivered.choices)

    def add(self, data: str) -> Any:
        """What goes to the client, None if nothing does.

        Raises:
            DiffersError: the runs differ.
        """
        if data == "[DONE]":
            if not self.all_caught_up:
                raise DiffersError("short")
            return data
        event = json.loads(data)
        self.without_choice += not event["choices"]
        is_new = self.without_choice > self.delivered.without_choice and self.all_caught_up
        news = [self._take(said) for said in event["choices"]]
        for said in event["choices"]:
            if said.get("finish_reason") is not None and not self.caught_up(said.get("index", 0)):
                raise DiffersError("short")
        if not (any(news) if news else is_new):
            return None
        for said in event["choices"]:
            known = self.delivered.choices.get(said.get("index", 0))
            if known is not None and known.ended and said.get("finish_reason") is not None:
                said["finish_reason"] = None
        for name, first in self.delivered.head.items():
            if first is not None and event.get(name) is not None:
                event[name] = first
        return event

    def _take(self, said: dict[str, Any]) -> bool:
        """Leaves in one choice of an event what is new. True: the client lacks some of it."""
        index = said.get("index", 0)
        known = self.delivered.choices.get(index)
        is_first = index not in self.begun
        self.begun.add(index)
        if known is None:
            return True
        run, target = self.runs[index], known.transcript.said
        dropped = fresh = False
        for place in places_of(said):
            text = place.text
            behind = len(run.said) >= len(target)
            run.add(place.channel, text)
            if behind:
                rest = len(text.encode())
            else:
                if len(run.said) >= len(target) and not run.said.startswith(target):
                    raise DiffersError("text")
                rest = max(0, len(run.said) - len(target))
                dropped = dropped or bool(text)
                place.leave(text.encode()[len(text.encode()) - rest :].decode())
            fresh = fresh or rest > 0
            if rest and known.ended:
                raise DiffersError("text")
        if dropped and fresh and (said.get("logprobs") is not None or said.get("token_ids") is not None):
            raise DiffersError("divided")
        delta = said.get("delta") or {}
        if is_first and delta.get("role") is not None:
            delta["role"] = None
        for call in delta.get("tool_calls") or []:
            if call.get("id") is not None and call["index"] < known.transcript.calls:
                call["id"] = None
        if known.ended:
            return False
        behind = self.caught_up(index) and not dropped and not is_first
        return fresh or said.get("finish_reason") is not None or behind
