"""The slow twin of cpp/simulation/kv_fabric.h: one engine, whose blocks are a plain list."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Request:
    state: str  # held, pulled, released, expired
    expiry: int
    blocks: list[int]


class KvFabric:
    """Every engine has a dictionary of contents, a list of free blocks and all requests that ever were."""

    def __init__(self, blocks: int, lease: int) -> None:
        self.lease = lease
        self.now = 0
        self.attached = True
        self.contents = dict.fromkeys(range(1, blocks + 1), 0)
        self.free = list(self.contents)
        self.requests: dict[str, Request] = {}
        self.counts = dict.fromkeys(
            ("pulled", "released", "stranded", "double_pull", "late_pull", "unknown_pull"), 0
        )

    def advance(self, nanos: int) -> None:
        self.now += nanos
        for request in self.requests.values():  # in the order of their leases
            if request.state == "held" and request.expiry <= self.now:
                for block in request.blocks:
                    self.contents[block] = 0
                self._end(request, "expired", "stranded")

    def hold(self, name: str, contents: list[int]) -> list[int] | None:
        if len(contents) > len(self.free):
            return None
        blocks = [self.free.pop(0) for _ in contents]
        self.contents.update(zip(blocks, contents, strict=True))
        self.requests[name] = Request("held", self.now + self.lease, blocks)
        return blocks

    def use(self, contents: list[int]) -> None:
        for content in contents[: len(self.free)]:
            block = self.free.pop(0)
            self.contents[block] = content
            self.free.append(block)

    def pull(self, name: str, blocks: list[int]) -> list[int] | str:
        if not self.attached:
            return "dead"
        if any(block not in self.contents for block in blocks):
            return "bad blocks"
        read = [self.contents[block] for block in blocks]
        request = self.requests.get(name)
        if request is None:
            self.counts["unknown_pull"] += 1
        elif request.state == "held":
            self._end(request, "pulled", "pulled")
        else:
            self.counts["late_pull" if request.state == "expired" else "double_pull"] += 1
        return read

    def release(self, name: str) -> None:
        request = self.requests.get(name)
        if request is not None and request.state == "held":
            self._end(request, "released", "released")

    def detach(self) -> None:
        self.attached = False
        self.contents.clear()
        self.free.clear()
        self.requests.clear()

    def counters(self) -> dict[str, int]:
        held = [request for request in self.requests.values() if request.state == "held"]
        return {"held": len(held), "held_blocks": sum(len(request.blocks) for request in held), **self.counts}

    def _end(self, request: Request, state: str, count: str) -> None:
        self.free += request.blocks
        request.blocks = []
        request.state = state
        self.counts[count] += 1
