"""The slow twin of cpp/policy/cache_aware.h, from docs/reference/policies.md alone: lists of prompts sent.

Prompts are bytes of UTF-8 or lists of ids; the first `scope` units name a model. Nothing is forgotten but
what a worker that left had, so limits are not its business.
"""

from collections.abc import Collection, Sequence
from fractions import Fraction

from tests.models.fleet import Fleet
from tests.models.policies import load_order
from tests.models.random import Random

Prompt = bytes | list[int]
ANSWER = b"\x1eassistant"


def common(a: Prompt, b: Prompt) -> int:
    """Units in common: to a whole character of text, to a whole page of ids."""
    if isinstance(a, list) != isinstance(b, list):
        return 0
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    if isinstance(a, list):
        return length - length % 16
    while 0 < length < max(len(a), len(b)) and any(
        length < len(text) and text[length] & 0xC0 == 0x80 for text in (a, b)
    ):
        length -= 1
    return length


def kept(prompt: Prompt) -> Prompt:
    """What a tree remembers of it: of ids whole pages."""
    return prompt[: len(prompt) - len(prompt) % 16] if isinstance(prompt, list) else prompt


class CacheAware:
    def __init__(
        self,
        seed: int,
        cache_threshold: float = 0.3,
        balance_abs_threshold: int = 64,
        balance_rel_threshold: int = 1500,
        balance_gate: str = "worker",
        spread_new_conversations: bool = True,
        miss_choice: str = "least_load",
    ) -> None:
        self.dice = Random(seed)
        self.threshold = cache_threshold
        self.abs = balance_abs_threshold
        self.rel = Fraction(balance_rel_threshold, 1000)
        self.gate = balance_gate
        self.spread = spread_new_conversations
        self.miss = miss_choice
        self.sent: dict[int, list[Prompt]] = {}  # by worker id
        self.ended: list[Prompt] = []
        self.starts: list[tuple[Prompt, int]] = []  # and how much of it is still counted

    def size(self, worker: int) -> int:
        """Bytes of distinct text, four per token."""
        texts = {
            text[:i]
            for text in self.sent.get(worker, [])
            if isinstance(text, bytes)
            for i in range(1, len(text) + 1)
        }
        pages = {
            tuple(ids[:end])
            for ids in self.sent.get(worker, [])
            if isinstance(ids, list)
            for end in range(16, len(ids) + 1, 16)
        }
        return len(texts) + 64 * len(pages)

    def forget(self) -> None:
        """What nobody was sent any more is gone, with what ended or was counted there."""
        everything = [text for texts in self.sent.values() for text in texts]

        def left(prompt: Prompt) -> int:
            return max((common(text, prompt) for text in everything), default=0)

        self.ended = [end for end in self.ended if left(kept(end)) == len(kept(end))]
        self.starts = [(start, min(counted, left(start))) for start, counted in self.starts]

    def held(self, worker: int, prompt: Prompt) -> int:
        return max((common(text, prompt) for text in self.sent.get(worker, [])), default=0)

    def least(self, fleet: Fleet, among: Sequence[int]) -> int:
        best = min(load_order(fleet.members[i]) for i in among)
        equals = [i for i in among if load_order(fleet.members[i]) == best]
        return self.draw(fleet, equals)

    def draw(self, fleet: Fleet, equals: list[int]) -> int:
        if len(equals) > 1:
            smallest = min(self.size(fleet.members[i].id) for i in equals)
            equals = [i for i in equals if self.size(fleet.members[i].id) == smallest]
        return equals[0] if len(equals) == 1 else equals[self.dice.below(len(equals))]

    def smallest(self, fleet: Fleet, among: Sequence[int]) -> int:
        least = min(self.size(fleet.members[i].id) for i in among)
        among = [i for i in among if self.size(fleet.members[i].id) == least]
        best = min(load_order(fleet.members[i]) for i in among)
        equals = [i for i in among if load_order(fleet.members[i]) == best]
        return equals[0] if len(equals) == 1 else equals[self.dice.below(len(equals))]

    def exceeds(self, load: Fraction, least: Fraction) -> bool:
        return load - least > self.abs and load > self.rel * least

    def continues(self, prompt: Prompt, framed: bool, scope: int, best: int) -> bool:
        """Whether an earlier prompt is the beginning of this one, on the part that somebody has."""
        for earlier in self.ended:
            end = len(earlier)
            reached = end - end % 16 if isinstance(earlier, list) else end
            if type(earlier) is not type(prompt) or prompt[:end] != earlier or end <= scope:
                continue
            if best == 0 or reached > scope + best:
                continue
            rest = prompt[end:]
            if not framed or not rest or (isinstance(rest, bytes) and rest.startswith(ANSWER)):
                return True
        return False

    def choose(
        self,
        prompt: Prompt,
        fleet: Fleet,
        tried: Collection[int] = (),
        framed: bool = False,
        scope: int = 0,
    ) -> tuple[int, str, int, int] | None:
        there = {worker.id for worker in fleet.members}
        if any(worker not in there for worker in self.sent):
            self.sent = {worker: texts for worker, texts in self.sent.items() if worker in there}
            self.forget()
        eligible = fleet.eligible(tried)
        if not eligible:
            return None
        total = len(prompt) - scope
        if total == 0:
            return self.least(fleet, eligible), "prefix_miss", 0, 0
        held = {i: max(0, self.held(fleet.members[i].id, prompt) - scope) for i in eligible}
        best = max(held.values())
        continues = self.continues(prompt, framed, scope, best)
        chosen, reason = self.pick(prompt, fleet, eligible, held, best, continues, scope, total)
        worker = fleet.members[chosen].id
        if kept(prompt):
            self.sent.setdefault(worker, []).append(kept(prompt))
            self.ended.append(prompt)
            if not continues:
                self.starts.append((kept(prompt), len(kept(prompt))))
        return chosen, reason, held[chosen], total

    def pick(
        self,
        prompt: Prompt,
        fleet: Fleet,
        eligible: list[int],
        held: dict[int, int],
        best: int,
        continues: bool,
        scope: int,
        total: int,
    ) -> tuple[int, str]:
        loads = {i: Fraction(fleet.members[i].requests * 1000, fleet.members[i].weight) for i in eligible}
        least = min(loads.values())
        if self.gate == "fleet" and self.exceeds(max(loads.values()), least):
            return self.least(fleet, eligible), "load_balance"
        grain = 16 if isinstance(prompt, list) else 64
        if best < grain or best / total <= self.threshold:
            if self.miss == "smallest_tree":
                return self.smallest(fleet, eligible), "prefix_miss"
            return self.least(fleet, eligible), "prefix_miss"
        if continues:
            holders = [i for i in eligible if held[i] == best]
        else:
            holders = [i for i in eligible if held[i] // grain == best // grain]
            if self.spread:
                depth = scope + best // grain * grain
                mine = [
                    start for start in self.starts if isinstance(start[0], list) == isinstance(prompt, list)
                ]
                passed = sum(counted >= depth and text[:depth] == prompt[:depth] for text, counted in mine)
                weight = sum(fleet.members[i].weight for i in eligible)
                if passed * weight > len(mine) * sum(fleet.members[i].weight for i in holders):
                    return self.least(fleet, eligible), "prefix_spread"
        holder = self.least(fleet, holders)
        if self.gate == "worker" and self.exceeds(loads[holder], least):
            return self.least(fleet, eligible), "load_balance"
        return holder, "prefix_hit"
