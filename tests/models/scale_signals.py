"""The slow twin of cpp/routing/scale_signals.h: it keeps all, and reads what it needs each time."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction

MEAN_SECS = 30
DOWN_SECS = 300
DEMAND_SECS = 60
MOST_SAMPLES = 64
MOST_REPLICAS = 10_000
MOST_SATURATION = 2.0


@dataclass(frozen=True)
class Options:
    target: float = 0.8
    target_wait_secs: float = 1.0
    min: int = 0
    max: int = 0

    def within(self, replicas: int) -> int:
        return min(max(replicas, self.min), self.max or MOST_REPLICAS)


@dataclass(frozen=True)
class Input:
    ready: int = 0
    pending: int = 0
    down: int = 0
    unknown: int = 0
    requests: int = 0
    queued: int = 0
    slots: float | None = None
    prefill_seconds: float | None = None
    kv_use: float | None = None
    polls_kv: bool = False
    hears_routers: bool = True
    demand: int = 0
    waiting: int = 0


def saturation_of(seen: Input, options: Options) -> float | None:
    shares = []
    if seen.slots:
        shares.append(seen.requests / seen.slots)
    if seen.prefill_seconds is not None:
        shares.append(seen.prefill_seconds / options.target_wait_secs)
    if seen.kv_use is not None:
        shares.append(seen.kv_use)
    if not seen.hears_routers:
        return None
    if seen.ready == 0:
        return None if seen.pending or seen.down or seen.unknown else 0.0
    if seen.requests == 0 and seen.queued == 0:
        return 0.0
    return min(max(shares), MOST_SATURATION) if shares else None


@dataclass
class ScaleSignals:
    samples: list[tuple[float, float, float]] = field(default_factory=list)  # time, saturation, busy replicas
    wanted: list[tuple[float, int]] = field(default_factory=list)
    demands: list[tuple[float, int]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # times at which requests waited
    knew_kv: bool = False
    desired: int = 0
    saturation: float = 0.0

    def update(self, seen: Input, options: Options, now: float) -> tuple[float, int, bool]:
        if not self.demands:
            self.desired = seen.ready + seen.pending + seen.down
            self.wanted.append((now, options.within(self.desired)))
        self.demands.append((now, seen.demand))
        if seen.waiting > 0:
            self.waits.append(now)
        if not seen.polls_kv:
            self.knew_kv = False
        self.knew_kv = self.knew_kv or seen.kv_use is not None
        lacks_kv = self.knew_kv and seen.kv_use is None and seen.ready > 0
        now_saturated = None if lacks_kv else saturation_of(seen, options)
        wanted = self.desired
        if now_saturated is not None:
            self.samples.append((now, now_saturated, now_saturated * seen.ready))
            recent = [sample for sample in self.samples if sample[0] > now - MEAN_SECS][-MOST_SAMPLES:]
            self.saturation = sum(sample[1] for sample in recent) / len(recent)
            busy = sum(Fraction(sample[2]) for sample in recent) / len(recent)
            wanted = min(math.ceil(busy / Fraction(options.target) - Fraction(1, 10**9)), MOST_REPLICAS)
            wanted = max(wanted, 0)
            if wanted > 0:
                wanted += seen.down
        pairs = itertools.pairwise(self.demands)
        rises = [after[0] for before, after in pairs if after[1] > before[1]]
        if any(now - at <= DEMAND_SECS for at in rises + self.waits):
            wanted = max(wanted, 1)
        self.wanted.append((now, options.within(wanted)))
        self.desired = options.within(max(number for at, number in self.wanted if at > now - DOWN_SECS))
        return self.saturation, self.desired, now_saturated is None
