"""The slow twins of the policy room, from docs/reference/policies.md alone: fractions and sorted lists.

A key is (source, text): ("session", text), ("body", text), or None when the part is missing. An answer is
(position, reason), or None when nobody is eligible.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any

from tests.models.block_cache_tracker import BlockCacheTracker
from tests.models.fleet import Fleet, Worker
from tests.models.hash_ring import HashRing
from tests.models.hashing import ring_hash, xxh3
from tests.models.moving_mean import MovingMean
from tests.models.random import Random

Key = tuple[str, str] | None
Answer = tuple[int, str] | None


def load_order(worker: Worker, metric: str = "requests") -> tuple[Fraction, Fraction]:
    """What is compared: smaller is less loaded."""
    requests = Fraction(worker.requests + worker.polled, worker.weight)
    tokens = Fraction(worker.tokens, worker.weight)
    return (requests, tokens) if metric == "requests" else (tokens, requests)


def least_loaded(fleet: Fleet, eligible: Sequence[int], dice: Random, metric: str = "requests") -> int:
    least = min(load_order(fleet.members[i], metric) for i in eligible)
    equals = [i for i in eligible if load_order(fleet.members[i], metric) == least]
    return equals[0] if len(equals) == 1 else equals[dice.below(len(equals))]


def cap(fleet: Fleet, eligible: Sequence[int], position: int, factor: Fraction) -> int:
    """Requests that a worker may have in hand: ceil(f * (R + 1) * s_w / S)."""
    requests = sum(fleet.members[i].requests for i in eligible)
    weights = sum(fleet.members[i].weight for i in eligible)
    return math.ceil(factor * (requests + 1) * fleet.members[position].weight / weights)


def smooth_schedule(weights: Sequence[int]) -> list[int]:
    """Smooth weighted round robin, one round; indices into `weights`."""
    divisor = math.gcd(*weights)
    if sum(weights) // divisor <= 1024:
        turns = [weight // divisor for weight in weights]
    else:
        shared = 1024 - len(weights) if len(weights) <= 512 else len(weights)
        turns = [max(1, weight * shared // sum(weights)) for weight in weights]
    credit = [0] * len(turns)
    schedule = []
    for _ in range(sum(turns)):
        credit = [have + turn for have, turn in zip(credit, turns, strict=True)]
        winner = credit.index(max(credit))
        credit[winner] -= sum(turns)
        schedule.append(winner)
    return schedule


class Policy:
    """Asked as the real one is: a key, a fleet, and who was tried already."""

    def choose(self, key: Key, fleet: Fleet, tried: Collection[int] = ()) -> Answer:
        eligible = fleet.eligible(tried)
        return self.answer(key, fleet, eligible) if eligible else None

    def answer(self, key: Key, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:
        raise NotImplementedError


class RandomPolicy(Policy):
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)

    def answer(self, key: Key, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:  # noqa: ARG002
        weights = [fleet.members[i].weight for i in eligible]
        if len(set(weights)) == 1:
            return eligible[self.dice.below(len(eligible))], "random"
        tickets = [i for i in eligible for _ in range(fleet.members[i].weight)]
        return tickets[self.dice.below(sum(weights))], "random"


class RoundRobin(Policy):
    def __init__(self) -> None:
        self.turn = -1

    def answer(self, key: Key, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:  # noqa: ARG002
        self.turn += 1
        if len({fleet.members[i].weight for i in eligible}) == 1:
            return eligible[self.turn % len(eligible)], "round_robin"
        # The schedule is that of the snapshot; a retry passes over the turns of those who were tried.
        planned = fleet.eligible()
        schedule = [planned[slot] for slot in smooth_schedule([fleet.members[i].weight for i in planned])]
        start = self.turn % len(schedule)
        return next(i for i in schedule[start:] + schedule[:start] if i in eligible), "round_robin"


class LeastLoad(Policy):
    def __init__(self, seed: int, metric: str = "requests") -> None:
        self.dice = Random(seed)
        self.metric = metric

    def answer(self, key: Key, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:  # noqa: ARG002
        return least_loaded(fleet, eligible, self.dice, self.metric), "least_loaded"


class PowerOfTwo(Policy):
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)

    def answer(self, key: Key, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:  # noqa: ARG002
        if len(eligible) == 1:
            return eligible[0], "power_of_two"
        first = eligible[self.dice.below(len(eligible))]
        others = [i for i in eligible if i != first]
        second = others[self.dice.below(len(others))]
        return min(first, second, key=lambda i: (load_order(fleet.members[i]), i != first)), "power_of_two"


class KeyedPolicy(Policy):
    def __init__(self, fallback: Policy) -> None:
        self.fallback = fallback

    def answer(self, key: Key, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:
        if key is None:
            return self.fallback.answer(key, fleet, eligible)[0], "fallback"
        source, text = key
        position, reason = self.owner(text, fleet, eligible)
        return position, f"{source}_hash" if reason == "home" else reason

    def owner(self, text: str, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:
        raise NotImplementedError


class ConsistentHash(KeyedPolicy):
    def __init__(
        self,
        fallback: Policy,
        virtual_nodes: int = 160,
        function: str = "furc",
        failover: str = "next",
        load_factor: Fraction = Fraction(0),
    ) -> None:
        super().__init__(fallback)
        self.virtual_nodes = virtual_nodes
        self.function = function
        self.failover = failover
        self.load_factor = load_factor

    def ring(self, fleet: Fleet) -> HashRing:
        """All members, whether they may serve or not. Half a point counts as one."""
        return HashRing(
            [(w.url, max(1, (self.virtual_nodes * w.weight + 500) // 1000)) for w in fleet.members],
            self.function,
        )

    def owner(self, text: str, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:
        ring = self.ring(fleet)
        point = ring_hash(self.function, text.encode())
        home = ring.find_owner(point, range(len(fleet.members)))
        assert home is not None
        takers = eligible
        if self.load_factor:
            takers = [
                i for i in eligible if fleet.members[i].requests < cap(fleet, eligible, i, self.load_factor)
            ]
        if home in takers:
            return home, "home"
        reason = "overflow" if home in eligible else "failover"
        if reason == "failover" and self.failover == "first":
            return takers[0], reason
        taker = ring.find_owner(point, takers)
        assert taker is not None, "somebody always has room"
        return taker, reason


class RendezvousHash(KeyedPolicy):
    def __init__(self, fallback: Policy, function: str = "furc") -> None:
        super().__init__(fallback)
        self.function = function

    def score(self, text: str, worker: Worker) -> int:
        if self.function == "furc":
            return ring_hash("furc", f"{text}:{worker.url}".encode())
        pair = [xxh3(text.encode()), xxh3(worker.url.encode())]
        return xxh3(b"".join(half.to_bytes(8, "little") for half in pair))

    def owner(self, text: str, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:
        equal = len({worker.weight for worker in fleet.members}) == 1

        def rank(position: int) -> tuple[float, int]:
            worker = fleet.members[position]
            score: float = self.score(text, worker)
            if not equal:
                logarithm = math.log((score + 0.5) / 2**64)
                score = -worker.weight / logarithm if logarithm else math.inf
            return score, position  # the later in fleet order on equality

        home = max(range(len(fleet.members)), key=rank)
        if home in eligible:
            return home, "home"
        return max(eligible, key=rank), "failover"


class LearnedBlocks:
    """What workers were sent, and behind each prompt as many nameless blocks as a mean response fills."""

    def __init__(self, max_blocks_per_worker: int, block_size: int) -> None:
        self.tracker = BlockCacheTracker(max_blocks_per_worker)
        self.block_size = block_size
        self.output_tokens = MovingMean()
        self.nameless = 0
        self.worker_block_tokens: dict[int, int] = {}  # by id: what was told, where it counts

    def held(self, blocks: Sequence[int], fleet: Fleet, eligible: Sequence[int]) -> dict[int, int]:
        held = self.tracker.match(blocks)
        ids = {i: fleet.members[i].id for i in eligible}
        return {i: self.complete(held.get(str(ids[i]), 0), ids[i]) for i in eligible}

    def complete(self, blocks: int, worker: int) -> int:
        """Of so many of ours, what complete blocks of the worker's size cover."""
        size = self.worker_block_tokens.get(worker, 1)
        covered = 0
        while covered + size <= blocks * self.block_size:
            covered += size
        return covered // self.block_size

    def told(self, worker: Worker, block_tokens: int) -> None:
        before = self.worker_block_tokens.get(worker.id, block_tokens)
        self.worker_block_tokens[worker.id] = block_tokens
        if before != block_tokens and str(worker.id) in self.tracker.used:
            self.tracker.evict(str(worker.id), 0)

    def forget_others(self, fleet: Fleet) -> None:
        for gone in set(self.tracker.used) - {str(worker.id) for worker in fleet.members}:
            self.tracker.remove(gone)

    def record(self, worker: Worker, blocks: Sequence[int]) -> None:
        response = math.floor(self.output_tokens.value / self.block_size + 0.5)
        self.nameless += response
        self.tracker.record(str(worker.id), [*blocks, *(i - self.nameless for i in range(response))])

    def finish(self, output_tokens: int) -> None:
        self.output_tokens.learn(min(output_tokens, 32_768))


class VllmCacheAware:
    """Asked with the names of a prompt's blocks; an answer is (position, reason, matched, total)."""

    def __init__(
        self,
        seed: int,
        max_blocks_per_worker: int = 100_000,
        cache_threshold: float = 0.3,
        load_factor: int = 1250,
        load_bound: str = "room",
        block_size: int = 16,
        prefix_load_floor: int = 0,
    ) -> None:
        self.dice = Random(seed)
        self.floor = prefix_load_floor
        self.threshold = cache_threshold
        self.factor = Fraction(load_factor, 1000)
        self.bound = load_bound
        self.learned = LearnedBlocks(max_blocks_per_worker, block_size)

    def has_room(self, fleet: Fleet, eligible: Sequence[int], position: int) -> bool:
        worker = fleet.members[position]
        if worker.requests < self.floor:
            return True
        if self.bound == "room":
            return worker.requests < cap(fleet, eligible, position, self.factor)
        members = [fleet.members[i] for i in eligible]
        mean = Fraction(sum(w.requests for w in members), sum(w.weight for w in members))
        return worker.requests < mean * worker.weight * self.factor

    def choose(
        self, blocks: Sequence[int], fleet: Fleet, tried: Collection[int] = ()
    ) -> tuple[int, str, int, int] | None:
        self.learned.forget_others(fleet)
        eligible = fleet.eligible(tried)
        if not eligible:
            return None
        total = len(blocks)
        if total == 0:
            return least_loaded(fleet, eligible, self.dice), "prefix_miss", 0, 0
        hits = self.learned.held(blocks, fleet, eligible)
        candidates = [i for i in eligible if hits[i] > self.threshold * total]
        room = [i for i in candidates if self.has_room(fleet, eligible, i)]
        if room:
            longest = max(hits[i] for i in room)
            chosen = least_loaded(fleet, [i for i in room if hits[i] == longest], self.dice)
            reason = "prefix_hit" if longest == max(hits[i] for i in candidates) else "overflow"
        else:
            chosen = least_loaded(fleet, eligible, self.dice)
            reason = "overflow" if candidates else "prefix_miss"
        self.learned.record(fleet.members[chosen], blocks)
        return chosen, reason, hits[chosen], total


class History:
    """What each worker was sent lately, by id."""

    def __init__(self) -> None:
        self.sent: dict[int, float] = {}

    def add(self, worker: int, work: float) -> None:
        self.sent[worker] = self.sent.get(worker, 0.0) + work

    def fade(self, workers: Collection[int]) -> None:
        for worker in workers:
            self.sent[worker] = self.sent.get(worker, 0.0) * (1 - 1 / 50)


class Auto:
    """Asked with a prompt's blocks and tokens, and the time; an answer is (position, reason, matched, total).

    Of times it knows the arrivals only: it is not told of first tokens, so all workers are equally fast.
    """

    TOKEN_S, STEP, REQUEST, CONTEXT = 80e-6, 150.0, 0.625, 0.0009125

    def __init__(
        self,
        seed: int,
        max_blocks_per_worker: int = 100_000,
        block_size: int = 16,
        objective: str = "balanced",
        lora_load_tokens: int = 2000,
    ) -> None:
        self.dice = Random(seed)
        self.block_size = block_size
        self.lora_load_tokens = lora_load_tokens
        self.learned = LearnedBlocks(max_blocks_per_worker, block_size)
        self.whole = {"balanced": 0.03, "ttft": 0.01}[objective]
        self.uncached = MovingMean()
        self.output = MovingMean()
        self.gap_s = MovingMean()
        self.last_s: float | None = None
        self.lost = MovingMean()
        self.seen: set[int] = set()
        self.open: Counter[int] = Counter()  # requests by the last block of what is known of their prompts
        self.history = History()
        self.since_fade = 0

    @staticmethod
    def limited(value: float, mean: MovingMean, most: float) -> float:
        return min(value, 4 * mean.value + most)

    def finish(self, output_tokens: int) -> None:
        self.learned.finish(output_tokens)
        self.output.learn(self.limited(output_tokens, self.output, 256))

    def costs(
        self,
        fleet: Fleet,
        uncached: dict[int, float],
        prompt_tokens: int,
        sharers: int,
        is_held: bool,
    ) -> dict[int, float]:
        members = {i: fleet.members[i] for i in uncached}
        count = len(members)
        polled = sum(worker.polled for worker in members.values())
        told = sum(worker.requests for worker in members.values())
        context = sum(worker.context for worker in members.values())
        mean_prompt = context / told if told else prompt_tokens
        mean_requests = (told + polled) / count
        mean_context = (context + polled * mean_prompt) / count
        rate = 1 / self.gap_s.value / count * self.TOKEN_S if self.gap_s.value > 0 else 0.0
        busy = min(0.95, rate * self.uncached.value)
        step = self.STEP + self.REQUEST * mean_requests + self.CONTEXT * mean_context
        stretch = min(20, step / self.STEP / (1 - busy))
        more = self.REQUEST + self.CONTEXT * prompt_tokens
        of_waiting = min(1, busy * stretch) * self.uncached.value
        place = 0.01 * mean_prompt / (mean_requests + 1)
        work = self.output.value * more
        evict = min(8, 10 * self.lost.value)
        copied = 1 / (1 + 3 * sharers)
        least = min(uncached.values())
        sent = {i: self.history.sent.get(worker.id, 0.0) for i, worker in members.items()}
        all_sent = sum(sent.values())
        turn = max(1.0, self.uncached.value, self.output.value)
        holder, alone = self.only_holder(uncached, prompt_tokens) if is_held and sharers == 0 else (None, 0.0)
        if holder is not None:
            own = (1 + work / turn) * alone / (members[holder].weight / 1000)
            sent[holder] = max(0.0, sent[holder] - own)
        costs = {}
        for i, worker in members.items():
            k, r = worker.waiting + worker.polled_waiting, worker.requests + worker.polled
            q = worker.prefill + worker.polled_waiting * self.uncached.value
            c = worker.context + worker.polled * mean_prompt
            decoding = self.REQUEST * r + self.CONTEXT * c
            beyond = uncached[i] - least
            delays = least + beyond * copied
            first = q + uncached[i] + 1.5 * decoding
            share = (uncached[i] + of_waiting) * k
            later = rate * stretch / 4 * delays * delays + 1.5 * more * stretch * r
            whole = self.whole * (self.output.value * (decoding + more * r) + uncached[i] * r)
            even = (work + uncached[i]) * min(4.0, sent[i] * (count / all_sent if all_sent > 0 else 0))
            now = (first + share + place * r * r) / (worker.weight / 1000)
            costs[i] = now + later + whole + even + evict * beyond
        return costs

    @staticmethod
    def only_holder(uncached: dict[int, float], prompt_tokens: int) -> tuple[int | None, float]:
        """The only worker with the least uncached tokens, and those that no other one holds."""
        ordered = sorted(uncached, key=lambda i: uncached[i])
        least = uncached[ordered[0]]
        if len(ordered) == 1:
            return ordered[0], prompt_tokens - least
        second = min(float(prompt_tokens), uncached[ordered[1]])
        return (ordered[0], second - least) if uncached[ordered[1]] > least else (None, 0.0)

    def preferred(self, costs: dict[int, float], residents: Collection[int]) -> dict[int, float]:
        """Those that have the adapter, unless the best of them costs more than another one and a load do."""
        home = {i: cost for i, cost in costs.items() if i in residents}
        away = {i: cost + self.lora_load_tokens for i, cost in costs.items() if i not in residents}
        if not away or (home and min(home.values()) <= min(away.values())):
            return home
        return away

    def learn_lost(self, blocks: Sequence[int], held: int) -> None:
        again = [(i, block) for i, block in enumerate(blocks) if block in self.seen]
        self.seen.update(blocks)
        if blocks:
            self.lost.learn(sum(i >= held for i, _ in again) / len(blocks))

    def choose(
        self,
        blocks: Sequence[int],
        prompt_tokens: int,
        fleet: Fleet,
        tried: Collection[int] = (),
        *,
        has_blocks: bool = True,
        residents: Collection[int] | None = None,
        now_s: float = 1.0,
    ) -> tuple[int, str, int, int] | None:
        self.learned.forget_others(fleet)
        self.history.sent = {worker.id: self.history.sent.get(worker.id, 0.0) for worker in fleet.members}
        eligible = fleet.eligible(tried)
        if not eligible:
            return None
        hits = self.learned.held(blocks, fleet, range(len(fleet.members)))
        uncached = {i: float(max(1, prompt_tokens - hits[i] * self.block_size)) for i in eligible}
        longest = max(hits.values())
        shared = blocks[longest - 1] % 4096 if longest else None
        sharers = self.open[shared] if shared is not None else 0
        costs = self.costs(fleet, uncached, prompt_tokens, sharers, longest > 0)
        if residents is not None:
            costs = self.preferred(costs, residents)
        cheapest = [i for i in costs if costs[i] == min(costs.values())]
        chosen = least_loaded(fleet, cheapest, self.dice)
        if self.last_s is not None:
            gap_s = (int(now_s * 1e9) - int(self.last_s * 1e9)) * 1e-9
            self.gap_s.learn(self.limited(gap_s, self.gap_s, 1))
        self.last_s = now_s
        self.learn_lost(blocks, longest)
        known = self.limited(uncached[chosen], self.uncached, 4096)
        self.uncached.learn(known)
        if shared is not None:
            self.open[shared] += 1
        worker = fleet.members[chosen]
        more = self.REQUEST + self.CONTEXT * max(1, prompt_tokens)
        self.history.add(worker.id, (self.output.value * more + known) / (worker.weight / 1000))
        self.since_fade += 1
        if self.since_fade >= len(eligible):
            self.since_fade = 0
            self.history.fade({fleet.members[i].id for i in eligible})
        if blocks:
            self.learned.record(worker, blocks)
        return chosen, "lowest_cost" if has_blocks else "fallback", hits[chosen], len(blocks)


class PrefixAware:
    """Asked with a prefix digest of 32 bytes, or None where the request has no text."""

    def __init__(
        self,
        fallback: Policy,
        virtual_nodes: int = 150,
        load_factor_epsilon: int = 250,
        prefix_load_floor: int = 0,
    ) -> None:
        self.fallback = fallback
        self.virtual_nodes = virtual_nodes
        self.factor = Fraction(1000 + load_factor_epsilon, 1000)
        self.floor = prefix_load_floor

    def has_room(self, fleet: Fleet, eligible: Sequence[int], position: int) -> bool:
        requests = fleet.members[position].requests
        return requests < self.floor or requests < cap(fleet, eligible, position, self.factor)

    def choose(self, digest: bytes | None, fleet: Fleet, tried: Collection[int] = ()) -> Answer:
        eligible = fleet.eligible(tried)
        if not eligible:
            return None
        if digest is None:
            return self.fallback.answer(None, fleet, eligible)[0], "fallback"
        ring = HashRing(
            [(w.url, max(1, (self.virtual_nodes * w.weight + 500) // 1000)) for w in fleet.members], "xxh3"
        )
        point = int.from_bytes(digest[:8], "big")
        owner = ring.find_owner(point, eligible)
        chosen = ring.find_owner(point, [i for i in eligible if self.has_room(fleet, eligible, i)])
        assert chosen is not None, "somebody always has room"
        return chosen, "prefix_hash" if chosen == owner else "overflow"


class PrefixHash:
    """Asked with a prompt, bytes or ids; an answer is (position, reason, matched, total)."""

    def __init__(
        self,
        fallback: Policy,
        seed: int = 0,
        virtual_nodes: int = 150,
        prefix_token_count: int = 256,
        prefix_hash_load_factor: int = 1250,
        prefix_hash_balance_abs_threshold: int = 10,
    ) -> None:
        self.fallback = fallback
        self.dice = Random(seed)
        self.virtual_nodes = virtual_nodes
        self.tokens = prefix_token_count
        self.factor = Fraction(prefix_hash_load_factor, 1000)
        self.threshold = prefix_hash_balance_abs_threshold

    def point(self, prompt: bytes | list[int]) -> int:
        if isinstance(prompt, list):
            return xxh3(b"".join(token.to_bytes(4, "little") for token in prompt[: self.tokens]))
        cut = prompt[: 4 * self.tokens]
        return xxh3(cut if cut == prompt else cut.decode(errors="ignore").encode())

    def is_overloaded(self, fleet: Fleet, eligible: Sequence[int], position: int) -> bool:
        members = [fleet.members[i] for i in eligible]
        # Weights are in thousandths.
        mean = Fraction(1 + sum(w.requests for w in members), sum(w.weight for w in members)) * 1000
        worker = fleet.members[position]
        load = Fraction(worker.requests, worker.weight) * 1000
        return load > max(mean * self.factor, mean + self.threshold)

    def choose(
        self, prompt: bytes | list[int] | None, fleet: Fleet, tried: Collection[int] = ()
    ) -> tuple[int, str, int, int] | None:
        eligible = fleet.eligible(tried)
        if not eligible:
            return None
        if not prompt:
            return self.fallback.answer(None, fleet, eligible)[0], "fallback", 0, 0
        ring = HashRing(
            [(w.url, max(1, (self.virtual_nodes * w.weight + 500) // 1000)) for w in fleet.members], "xxh3"
        )
        owner = ring.find_owner(self.point(prompt), eligible)
        assert owner is not None
        if not self.is_overloaded(fleet, eligible, owner):
            return owner, "prefix_hash", 0, 0
        takers = [i for i in eligible if not self.is_overloaded(fleet, eligible, i)]
        return least_loaded(fleet, takers, self.dice), "overflow", 0, 0


class StickyLeastLoaded(KeyedPolicy):
    """Sessions by URL and incarnation; `sessions` in order of use. Nothing expires."""

    def __init__(self, fallback: Policy, max_sessions: int) -> None:
        super().__init__(fallback)
        self.max_sessions = max_sessions
        self.sessions: dict[str, Worker] = {}

    def owner(self, text: str, fleet: Fleet, eligible: list[int]) -> tuple[int, str]:
        known = self.sessions.pop(text, None)
        positions = [i for i in eligible if fleet.members[i] is known]
        if positions:
            chosen, reason = positions[0], "sticky"
        else:
            # A session that moves still counts for the worker that it had.
            count = Counter(worker.id for worker in [*self.sessions.values(), known] if worker is not None)

            def order(position: int) -> tuple[Any, ...]:
                worker = fleet.members[position]
                pair = [xxh3(text.encode()), xxh3(worker.url.encode())]
                rank = xxh3(b"".join(half.to_bytes(8, "little") for half in pair))
                return Fraction(count[worker.id], worker.weight), load_order(worker), -rank

            chosen = min(eligible, key=order)
            reason = "sticky_new" if known is None else "failover"
        if len(self.sessions) >= self.max_sessions:
            self.sessions.pop(next(iter(self.sessions)))
        self.sessions[text] = fleet.members[chosen]
        return chosen, reason

    def finish(self, text: str) -> bool:
        return self.sessions.pop(text, None) is not None


def make_policy(
    name: str,
    seed: int = 0,
    *,
    fallback_policy: str = "least_load",
    least_load_metric: str = "requests",
    virtual_nodes: int = 160,
    hash_function: str = "furc",
    hash_failover: str = "next",
    hash_load_factor: int = 0,
    max_sessions: int = 262_144,
) -> Policy:
    """The twin of MakePolicy, with its options; hash_load_factor in thousandths."""

    def keyless(name: str) -> Policy:
        if name == "random":
            return RandomPolicy(seed)
        if name == "round_robin":
            return RoundRobin()
        if name == "power_of_two":
            return PowerOfTwo(seed)
        return LeastLoad(seed, least_load_metric)

    if name == "consistent_hash":
        return ConsistentHash(
            keyless(fallback_policy),
            virtual_nodes,
            hash_function,
            hash_failover,
            Fraction(hash_load_factor, 1000),
        )
    if name == "sticky_least_loaded":
        return StickyLeastLoaded(keyless(fallback_policy), max_sessions)
    if name == "rendezvous_hash":
        return RendezvousHash(keyless(fallback_policy), hash_function)
    return keyless(name)
