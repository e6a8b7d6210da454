"""The slow twin of cpp/events/event_applier.h: of each hash its prompt and tiers; depths by a walk."""

from __future__ import annotations

from typing import Any

from tests.models.removed_blocks import RemovedBlocks

# What a block stands for: adapter, salt, and all tokens up to its end.
Key = tuple[str, str, tuple[int, ...]]

TIERS = {"gpu": 0, "host": 1, "external": 2}


class Picture:
    """The cache of one source. Events are those of _core_testing.decode_kv_batch, texts as bytes."""

    def __init__(self, model: str = "m", counts_copies: bool = True, max_removed: int = 8192) -> None:
        self.model, self.counts_copies, self.max_removed = model, counts_copies, max_removed
        self.has_tiers = False
        self.negative = 0
        self.clear()

    def clear(self) -> None:
        self.keys: dict[int, Key] = {}  # of known hashes
        self.held: dict[int, list[int]] = {}  # copies on each tier
        self.orphans: list[dict[str, Any]] = []
        self.parents: dict[int, tuple[int, Key] | None] = {}  # of those stored since there are tiers
        self.late: list[int] = []  # of this batch: off some tier
        self.removed = RemovedBlocks(self.max_removed)

    def apply(self, batch: dict[str, Any]) -> None:
        for event in batch["events"]:
            self.has_tiers |= event["medium"] != "gpu"
            if event["kind"] == "cleared":
                self.clear()
            elif event["kind"] == "removed":
                for name in event["hashes"]:
                    self.remove(name, TIERS[event["medium"]])
            elif event["tokens"]:
                self.store_or_wait(event)
            else:
                self.place(event["hashes"], TIERS[event["medium"]])
        for name in self.late:
            if name in self.parents and not any(self.held[name]):
                self.removed.add(name, (self.keys[name], self.parents.pop(name)))
        self.late = []
        for name in [name for name, tiers in self.held.items() if not any(tiers)]:
            del self.held[name], self.keys[name]

    def remove(self, name: int, tier: int) -> None:
        if name in self.held and self.held[name][tier] > 0:
            self.held[name][tier] -= 1
            if not self.held[name][tier]:
                self.late.append(name)
            return
        for orphan in self.orphans:
            if TIERS[orphan["medium"]] == tier and name in orphan["waiting"]:
                orphan["waiting"].remove(name)
                orphan["removed"].append(name)
                return
        self.negative += 1

    def place(self, names: list[int], tier: int) -> None:
        missing = [name for name in names if not self.put(name, tier)]
        for name in reversed(missing):
            self.put(name, tier)
        self.attach()

    def put(self, name: int, tier: int) -> bool:
        if name not in self.keys:
            known = self.removed.find(name)
            if known is None:
                return False
            key, parent = known
            if parent is not None and self.keys.get(parent[0]) != parent[1]:
                return False
            self.keys[name], self.parents[name], self.held[name] = key, parent, [0, 0, 0]
        self.held[name][tier] = max(1, self.held[name][tier])
        return True

    def store_or_wait(self, event: dict[str, Any]) -> None:
        if event["parent"] is not None and event["parent"] not in self.keys:
            self.orphans.append(event | {"waiting": list(event["hashes"]), "removed": []})
            return
        self.store(event)
        self.attach()

    def attach(self) -> None:
        while ready := [orphan for orphan in self.orphans if orphan["parent"] in self.keys]:
            self.orphans = [orphan for orphan in self.orphans if orphan not in ready]
            for orphan in ready:
                self.store(orphan)
                for name in orphan["removed"]:
                    self.remove(name, TIERS[orphan["medium"]])

    def store(self, event: dict[str, Any]) -> None:
        tier = TIERS[event["medium"]]
        if event["parent"] is None:
            names = [
                name.decode() for block, kind, name, _ in event["extras"] if (block, kind) == (0, "name")
            ]
            adapter = event["lora_name"].decode() or self.model
            salts = [name for name in names if name != adapter]
            before: Key = (adapter, salts[-1] if salts else event["cache_salt"].decode(), ())
        else:
            before = self.keys[event["parent"]]
        again = event["parent"] is None and all(self.held.get(name, [0])[0] > 0 for name in event["hashes"])
        tokens = before[2]
        parent = None if event["parent"] is None else (event["parent"], before)
        for at, name in enumerate(event["hashes"]):
            tokens += tuple(event["tokens"][at * event["block_size"] : (at + 1) * event["block_size"]])
            self.keys[name] = (*before[:2], tokens)
            if self.has_tiers:
                self.parents[name] = parent
            parent = (name, self.keys[name])
            tiers = self.held.setdefault(name, [0, 0, 0])
            adds = tier == 0 and self.counts_copies and not again
            tiers[tier] = tiers[tier] + 1 if adds else max(1, tiers[tier])

    def blocks(self, size: int, engine_size: int) -> dict[Key, set[int]]:
        """The tiers of each of the router's blocks, of `size` tokens."""
        found: dict[Key, set[int]] = {}
        for name, tiers in self.held.items():
            adapter, salt, tokens = self.keys[name]
            on = {tier for tier in range(3) if tiers[tier]}
            for end in range(len(tokens) - engine_size + size, len(tokens) + 1, size):
                found.setdefault((adapter, salt, tokens[:end]), set()).update(on)
        return found


def depths(
    blocks: dict[Key, set[int]], adapter: str, salt: str, tokens: tuple[int, ...], size: int
) -> tuple[int, ...]:
    """Leading blocks on each tier or a faster one."""
    found = []
    for tier in range(3):
        depth = 0
        for end in range(size, len(tokens) + 1, size):
            if not any(on <= tier for on in blocks.get((adapter, salt, tokens[:end]), ())):
                break
            depth += 1
        found.append(depth)
    return tuple(found)
