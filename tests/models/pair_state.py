"""The slow twin of PairState in cpp/worker/worker_registry.cc: which workers may be halves of a pair."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Member:
    url: str
    stage: str
    engine_id: str | None = None
    engine: str = ""
    group: str = ""


class PairFleet:
    """`engine_ids`, `one_engine`: what the connector needs. Groups are those that blocks fit."""

    def __init__(self, engine_ids: bool, one_engine: bool) -> None:
        self.engine_ids = engine_ids
        self.one_engine = one_engine
        self.engine = ""
        self.members: list[Member] = []

    def find(self, url: str) -> Member:
        return next(member for member in self.members if member.url == url)

    def publish(self) -> tuple[str, list[tuple[str, str]]]:
        """The fleet's engine, and of each member what stands in its way: "", id, engine, other, partner."""
        known = [member.engine for member in self.members if member.engine] if self.one_engine else []
        if self.engine not in known:
            self.engine = known[0] if known else ""
        obstacles = {member.url: self._obstacle(member) for member in self.members}
        decode = [m for m in self.members if m.stage == "decode" and not obstacles[m.url]]
        for member in self.members:
            may_pair = any(not d.group or not member.group or d.group == member.group for d in decode)
            if member.stage == "prefill" and not obstacles[member.url] and decode and not may_pair:
                obstacles[member.url] = "partner"
        return self.engine, [(member.url, obstacles[member.url]) for member in self.members]

    def _obstacle(self, member: Member) -> str:
        if self.engine_ids and member.stage == "prefill" and member.engine_id is None:
            return "id"
        if not self.one_engine or member.engine == self.engine != "":
            return ""
        return "other" if member.engine else "engine"
