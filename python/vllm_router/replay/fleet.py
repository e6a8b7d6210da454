"""Fleet: the simulated workers that a trace is played to, and what happens to them meanwhile."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vllm_router import _engines
from vllm_router._engines import COEFFICIENTS
from vllm_router._messages import did_you_mean, quoted
from vllm_router.replay import _engine
from vllm_router.replay.trace import Trace, TraceError

# So that a prompt of the usual context length fits into any cache.
SMALLEST_CACHE_TOKENS = 160_000
MAX_WORKERS = 1024
MAX_ROUTERS = 64

Kind = Literal["fail", "join", "drain", "wipe"]
KINDS: tuple[Kind, ...] = ("fail", "join", "drain", "wipe")


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happens to a worker at a time of the replay.

    `fail`: its requests are lost, those without a token are sent again, its cache is gone. `join`: it is
    there from now on; a worker whose first event is a join is not there before. `drain`: it gets no further
    requests. `wipe`: it loses what is cached.
    """

    time_s: float
    """Seconds since the first arrival."""
    kind: Kind
    """`fail`, `join`, `drain` or `wipe`."""
    worker: int
    """Counted from 0."""

    @classmethod
    def parse(cls, kind: Kind, text: str) -> Event:
        """`120:3` is worker 3 (counted from 0) at 120 s."""
        match = re.fullmatch(r"([0-9.]+):([0-9]+)", text)
        try:
            return cls(float(match[1]), kind, int(match[2])) if match else cls._refuse(kind, text)
        except ValueError:
            return cls._refuse(kind, text)

    @staticmethod
    def _refuse(kind: str, text: str) -> Event:
        raise TraceError(
            f"--{kind} is {quoted(text)}; it must be SECONDS:WORKER, such as 120:3 for worker 3 "
            "at 120 seconds"
        )


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Workers alike but for their speeds, behind one router or several.

    The cache of a worker is `cache_tokens`, or, when that is None, an equal part of `cache_share` times the
    trace's working set, at least 160,000 tokens. Either way the longest request of the trace fits.
    """

    workers: int = 8
    """How many."""
    cache_tokens: int | None = None
    """Tokens that one worker's cache holds."""
    cache_share: float = 1.0
    """Without it: all caches together, in working sets of the trace."""
    engine: str = "h200_32b"
    """A preset's name, see docs/reference/replay.md."""
    coefficients: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """What differs from the preset, by name."""
    max_running: int = 256
    """Most requests that a worker computes at once."""
    step_tokens: int = 8192
    """Most tokens that one step computes."""
    speeds: Sequence[float] = ()
    """One per worker; empty: all 1."""
    weights: Sequence[float] = ()
    """What the router takes them for; empty: all 1."""
    events: Sequence[Event] = ()
    """What happens to workers meanwhile."""
    wipe_every_s: float = 0
    """Every so often the next worker in turn loses its cache; 0: never."""
    routers: int = 1
    """Replicas of the router that know nothing of each other."""
    by_session: bool = False
    """A session's requests come to one replica; otherwise each to any."""

    def __post_init__(self) -> None:
        _within("workers", self.workers, 1, MAX_WORKERS, "a whole number")
        _within("routers", self.routers, 1, MAX_ROUTERS, "a whole number")
        _within("max_running", self.max_running, 1, 1 << 20, "a whole number")
        _within("step_tokens", self.step_tokens, 1, 1 << 24, "a whole number")
        if self.cache_tokens is not None:
            _within("cache_tokens", self.cache_tokens, 0, 1 << 40, "a whole number")
        if not (math.isfinite(self.cache_share) and self.cache_share > 0):
            raise TraceError(f"cache_share is {self.cache_share:g}; it must be above 0")
        if not (math.isfinite(self.wipe_every_s) and self.wipe_every_s >= 0):
            raise TraceError(f"wipe_every_s is {self.wipe_every_s:g}; it must be 0 (never) or more")
        for name, values in (("speeds", self.speeds), ("weights", self.weights)):
            if values and len(values) != self.workers:
                raise TraceError(
                    f"there are {len(values)} {name} for {self.workers} workers; give one for each"
                )
            if not all(math.isfinite(value) and 0.01 <= value <= 100 for value in values):
                raise TraceError(f"{name} are {list(values)}; each must be from 0.01 to 100")
        for event in self.events:
            if event.kind not in KINDS:
                raise TraceError(f"an event is {quoted(event.kind)}; it must be one of {', '.join(KINDS)}")
            if not 0 <= event.worker < self.workers:
                raise TraceError(
                    f"an event is for worker {event.worker}; with {self.workers} workers the last one is "
                    f"{self.workers - 1}"
                )
            if not (math.isfinite(event.time_s) and event.time_s >= 0):
                raise TraceError(f"an event is at {event.time_s:g} s; it must be at 0 or later")
        _engine.coefficients(self.engine)
        for name, value in self.coefficients.items():
            if name not in COEFFICIENTS:
                raise TraceError(
                    f"{name} is not a coefficient of the engine"
                    + did_you_mean(name, COEFFICIENTS, f"; they are {', '.join(COEFFICIENTS)}")
                )
            if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
                raise TraceError(f"coefficient {name} is {quoted(value)}; it must be a number, 0 or more")

    def cache_blocks(self, trace: Trace) -> int:
        """Blocks in one worker's cache for this trace."""
        if self.cache_tokens is not None:
            tokens = self.cache_tokens
            if tokens == 0:
                return 0
        else:
            tokens = max(
                SMALLEST_CACHE_TOKENS, int(self.cache_share * trace.working_set_tokens / self.workers)
            )
        longest = trace.input_tokens.astype(np.int64) + trace.output_tokens + trace.block_size
        return max(tokens, int(longest.max())) // trace.block_size

    def routing(self) -> dict[str, Any]:
        """What the core takes as properties of the routing."""
        return {"routers": self.routers, "by_session": self.by_session}

    def as_core(self, trace: Trace) -> dict[str, Any]:
        """As the C++ core takes it."""
        events = list(self.events)
        if self.wipe_every_s > 0:
            times = np.arange(self.wipe_every_s, trace.span_s, self.wipe_every_s)
            events += [Event(float(time), "wipe", turn % self.workers) for turn, time in enumerate(times)]
        return {
            "workers": self.workers,
            "cache_blocks": self.cache_blocks(trace),
            "coefficients": _engine.coefficients(self.engine)
            | {name: float(value) for name, value in self.coefficients.items()},
            "max_running": self.max_running,
            "step_tokens": self.step_tokens,
            "speeds": [float(speed) for speed in self.speeds],
            "weights": [float(weight) for weight in self.weights],
            "events": [dataclasses.asdict(event) for event in sorted(events, key=lambda e: e.time_s)],
        }


def _within(name: str, value: object, least: int, most: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise TraceError(f"{name} is {value}; it must be {what} from {least} to {most}")


def read_engine(path: str | Path) -> dict[str, Any]:
    """An engine's figures from a YAML file: coefficients by name, and `engine`, `max_running`, `step_tokens`.

    Raises:
        TraceError: the file cannot be read, or a name is not known.
    """
    try:
        return _engines.read_engine(path)
    except ValueError as error:
        raise TraceError(str(error)) from None
