"""What a TensorRT-LLM engine tells of its cache, and a fake worker that is polled for it.

engine = TrtllmEngine()
router = open_router(harness, harness.worker(engine), kv_events_engine="trtllm")
engine.stored(TOKENS)
wait_for(harness, router, gpu_blocks=4, trust="exact")
"""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.fakes.kv_engine import Engine
from tests.fakes.wire import response

PATH = "/kv_cache_events"


class TrtllmCache:
    """Events of one rank; names of blocks are 1000, 1001, ..."""

    def __init__(self, block_size: int = 16, window: int | None = 4096, rank: int | None = None) -> None:
        self.block_size = block_size
        self.window = window
        self.rank = rank
        self.number = 0
        self.names = 1000

    def event(self, kind: str, **data: Any) -> dict[str, Any]:
        written: dict[str, Any] = {"event_id": self.number, "data": {"type": kind, **data}}
        self.number += 1
        if self.window is not None:
            written["window_size"] = self.window
        if self.rank is not None:
            written["attention_dp_rank"] = self.rank
        return written

    def created(self, gpu_blocks: int = 1000) -> dict[str, Any]:
        return self.event("created", num_blocks_per_cache_level=[gpu_blocks, 20])

    def stored(
        self, tokens: list[int], parent: int | str | None = None, level: int = 0, **more: Any
    ) -> dict[str, Any]:
        blocks = []
        for begin in range(0, len(tokens), self.block_size):
            ids = tokens[begin : begin + self.block_size]
            block = {
                "type": "stored_block",
                "block_hash": self.names,
                "tokens": [{"type": "unique_token", "token_id": n, "token_extra_id": 0} for n in ids],
                "cache_level": level,
                "priority": 35,
                "mm_keys": [],
            }
            blocks.append(block | more)
            self.names += 1
        return self.event("stored", parent_hash=parent, blocks=blocks)

    def removed(self, *names: int) -> dict[str, Any]:
        return self.event("removed", block_hashes=list(names))

    def moved(self, name: int, before: int, now: int) -> dict[str, Any]:
        level = {"type": "event_diff", "new_value": now, "old_value": before}
        return self.event("updated", block_hash=name, cache_level=level, priority=None)


class TrtllmEngine(Engine):
    """A worker that keeps events until it is polled."""

    def __init__(self, method: str = "POST") -> None:
        super().__init__()
        self.method = method
        self.cache = TrtllmCache()
        self.lock = threading.Lock()
        self.events = [self.cache.created()]
        self.polls: list[str] = []
        self.reply: tuple[int, bytes] | None = None  # instead of events

    def tell(self, *events: dict[str, Any]) -> None:
        with self.lock:
            self.events += events

    def take(self) -> list[dict[str, Any]]:
        with self.lock:
            events, self.events = self.events, []
        return events

    def restart(self) -> None:
        with self.lock:
            self.cache = TrtllmCache()
            self.events = [self.cache.created()]

    def __call__(self, connection: Any, message: Any) -> None:
        if message.target != PATH:
            super().__call__(connection, message)
            return
        self.polls.append(message.method)
        if self.reply is not None:
            connection.send(response(*self.reply))
        elif message.method != self.method:
            connection.send(response(405, b"{}"))
        else:
            connection.send(response(200, json.dumps(self.take()).encode()))
