"""The slow twins of kv_logit, kv_aware and kv_overlap: sets of blocks by tier, and sums in plain floats.

Asked with a prompt's blocks, whose names tell the whole path, and its tokens; an answer is (position, reason,
matched, total), or None when no worker is eligible.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from tests.models.fleet import Fleet, Worker
from tests.models.policies import LearnedBlocks, PrefixAware, cap, least_loaded
from tests.models.random import Random

Tiers = tuple[int, int, int]
Answer = tuple[int, str, int, int] | None


class KnownBlocks:
    """What workers hold: as they report it where they do, and else as it was sent to them."""

    def __init__(self, max_blocks_per_worker: int, block_size: int) -> None:
        self.learned = LearnedBlocks(max_blocks_per_worker, block_size)
        self.reported: dict[int, tuple[set[int], set[int], set[int]]] = {}  # by worker's id
        self.predicted: dict[int, set[int]] = defaultdict(set)

    def report(self, worker: Worker, blocks: Sequence[int], tier: int) -> None:
        self.reported.setdefault(worker.id, (set(), set(), set()))[tier].update(blocks)

    def record(self, worker: Worker, blocks: Sequence[int]) -> None:
        self.learned.record(worker, blocks)
        if worker.id in self.reported:
            self.predicted[worker.id].update(blocks)

    def held(self, blocks: Sequence[int], fleet: Fleet, eligible: Sequence[int]) -> dict[int, Tiers]:
        """Leading blocks without a gap on the GPU, there or on the host, and anywhere."""
        learned = self.learned.held(blocks, fleet, eligible)
        held = {}
        for position in eligible:
            worker = fleet.members[position].id
            if worker not in self.reported:
                held[position] = (learned[position],) * 3
                continue
            gpu, host, disk = self.reported[worker]
            predicted = depth(blocks, self.predicted[worker])
            held[position] = (
                max(depth(blocks, gpu), predicted),
                max(depth(blocks, gpu | host), predicted),
                max(depth(blocks, gpu | host | disk), predicted),
            )
        return held


def depth(blocks: Sequence[int], known: set[int]) -> int:
    for i, block in enumerate(blocks):
        if block not in known:
            return i
    return len(blocks)


class KvLogit:
    def __init__(
        self,
        seed: int,
        max_blocks_per_worker: int = 100_000,
        block_size: int = 16,
        overlap_weight: float = 1.0,
        temperature: float = 0.0,
        shares: tuple[float, float] = (0.75, 0.25),
        prefill: str = "uncached",
        decode: str = "potential",
        multiplier: float = 0.0,
    ) -> None:
        self.dice = Random(seed)
        self.block_size = block_size
        self.known = KnownBlocks(max_blocks_per_worker, block_size)
        self.options = {
            "overlap_weight": overlap_weight,
            "router_temperature": temperature,
            "shared_cache_multiplier": multiplier,
        }
        self.credits, self.prefill, self.decode = shares, prefill, decode
        self.open: list[tuple[int, list[int]] | None] = []  # worker's id and blocks, by decision

    def end(self, decision: int, _end: str, _status: int) -> None:
        self.open[decision] = None

    def decoding(self, worker: Worker, blocks: Sequence[int]) -> int:
        active = {block for entry in self.open if entry and entry[0] == worker.id for block in entry[1]}
        return len(active.union(blocks) if self.decode == "potential" else active)

    def cost(
        self,
        worker: Worker,
        blocks: Sequence[int],
        prompt_tokens: int,
        held: Tiers,
        shared: Collection[int],
        options: dict[str, float],
    ) -> float:
        gpu, host, disk = (
            float(n * self.block_size) for n in (held[0], held[1] - held[0], held[2] - held[1])
        )
        host_credit, disk_credit = self.credits
        beyond = sum(held[2] <= block < len(blocks) for block in shared) * self.block_size
        cached = (
            (gpu if self.prefill == "uncached" else 0)
            + host_credit * host
            + disk_credit * disk
            + options["shared_cache_multiplier"] * beyond
        )
        prefill = max(0.0, worker.prefill + prompt_tokens - cached)
        work = options["overlap_weight"] * prefill / self.block_size + self.decoding(worker, blocks)
        return work / (worker.weight / 1000)

    def choose(
        self,
        blocks: Sequence[int],
        prompt_tokens: int,
        fleet: Fleet,
        tried: Collection[int] = (),
        shared: Collection[int] = (),
        override: Mapping[str, float] = MappingProxyType({}),
    ) -> Answer:
        options = {**self.options, **override}
        self.known.learned.forget_others(fleet)
        eligible = fleet.eligible(tried)
        if not eligible:
            return None
        held = self.known.held(blocks, fleet, eligible)
        costs = {
            i: self.cost(fleet.members[i], blocks, prompt_tokens, held[i], shared, options) for i in eligible
        }
        cheapest = [i for i in eligible if costs[i] == min(costs.values())]
        temperature = options["router_temperature"]
        chosen = self.draw(costs, temperature) if temperature else least_loaded(fleet, cheapest, self.dice)
        self.open.append((fleet.members[chosen].id, [*blocks]))
        if blocks:
            self.known.record(fleet.members[chosen], blocks)
        reason = "lowest_cost" if chosen in cheapest else "sampled"
        return chosen, reason, held[chosen][2], len(blocks)

    def draw(self, costs: dict[int, float], temperature: float) -> int:
        least, most = min(costs.values()), max(costs.values())
        weights = {
            i: math.exp(-(cost - least) / (most - least) / temperature) if most > least else 1.0
            for i, cost in costs.items()
        }
        left = (self.dice.next() >> 11) * 2.0**-53 * sum(weights.values())
        for i, weight in weights.items():
            left -= weight
            if left < 0:
                return i
        return list(costs)[-1]


class KvOverlap:
    def __init__(
        self,
        ring: PrefixAware,
        seed: int,
        max_blocks_per_worker: int = 100_000,
        block_size: int = 16,
        threshold: float = 0.3,
        basis: str = "prompt",
        load_factor: float = 2.0,
        tiers: tuple[float, float] = (1.0, 0.6),
    ) -> None:
        self.ring = ring
        self.dice = Random(seed)
        self.block_size = block_size
        self.known = KnownBlocks(max_blocks_per_worker, block_size)
        self.threshold, self.basis, self.load_factor, self.tiers = threshold, basis, load_factor, tiers
        self.ends: dict[int, list[bool]] = defaultdict(list)  # by worker's id
        self.chosen: list[int] = []  # worker's id, by decision

    def end(self, decision: int, end: str, status: int) -> None:
        if end in ("finished", "worker_failed"):
            self.ends[self.chosen[decision]].append(end == "finished" and status < 500)

    def health(self, worker: Worker) -> float:
        last = self.ends[worker.id][-100:]
        return sum(last) / len(last) if last else 1.0

    def choose(
        self,
        blocks: Sequence[int],
        prompt_tokens: int,
        digest: bytes | None,
        fleet: Fleet,
        tried: Collection[int] = (),
    ) -> Answer:
        self.known.learned.forget_others(fleet)
        eligible = fleet.eligible(tried)
        if not eligible:
            return None
        if not blocks:
            by_ring = self.ring.choose(digest, fleet, tried)
            assert by_ring is not None
            self.chosen.append(fleet.members[by_ring[0]].id)
            return (*by_ring, 0, 0)
        held = self.known.held(blocks, fleet, eligible)
        tokens = {i: float(held[i][2] * self.block_size) for i in eligible}
        on_gpu = {i: float(held[i][0] * self.block_size) for i in eligible}
        credit = {i: self.tiers[0] * on_gpu[i] + self.tiers[1] * (tokens[i] - on_gpu[i]) for i in eligible}
        whole = prompt_tokens if self.basis == "prompt" else max(tokens.values())
        best = max(credit.values())
        if best <= 0 or best < self.threshold * whole:
            by_ring = self.ring.choose(digest, fleet, tried)
            assert by_ring is not None
            chosen, reason = by_ring
        else:
            chosen, reason = self.by_score(credit, max(tokens.values()), fleet, eligible), "kv_aware"
        self.chosen.append(fleet.members[chosen].id)
        self.known.record(fleet.members[chosen], blocks)
        return chosen, reason, held[chosen][2], len(blocks)

    def by_score(self, credit: dict[int, float], most: float, fleet: Fleet, eligible: Sequence[int]) -> int:
        loads = {i: fleet.members[i].requests / fleet.members[i].weight for i in eligible}
        busiest = max(loads.values())

        def score(i: int) -> float:
            free = 1 - loads[i] / busiest if busiest else 1.0
            return 0.6 * (credit[i] / most) + 0.3 * free + 0.1 * self.health(fleet.members[i])

        room = [
            i
            for i in eligible
            if not self.load_factor or fleet.members[i].requests < cap(fleet, eligible, i, self.load_factor)
        ]
        scores = {i: score(i) for i in room}
        return least_loaded(fleet, [i for i in room if scores[i] == max(scores.values())], self.dice)
