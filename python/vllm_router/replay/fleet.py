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

# Of a transfer. What the preset h200_32b keeps of a token: keys and values of 64 layers with 8 heads of 128
# in BF16. The rate of the simulated engines of NVIDIA Dynamo. The hand-over, of which a pull's own latency is
# 0.3 ms with vLLM 0.32 and NIXL.
KV_BYTES_PER_TOKEN = 262_144
LINK_GB_PER_S = 64
TRANSFER_MS = 1.0

Kind = Literal["fail", "join", "drain", "wipe", "speed"]
KINDS: tuple[Kind, ...] = ("fail", "join", "drain", "wipe", "speed")


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happens to a worker at a time of the replay.

    `fail`: its requests are lost, those without a token are sent again, its cache is gone. `join`: it is
    there from now on; a worker whose first event is a join is not there before. `drain`: it gets no further
    requests. `wipe`: it loses what is cached. `speed`: it is so fast from its next step on.
    """

    time_s: float
    """Seconds since the first arrival."""
    kind: Kind
    """`fail`, `join`, `drain`, `wipe` or `speed`."""
    worker: int
    """Counted from 0."""
    speed: float = 1.0
    """Of `speed`: relative, 1 is the usual worker; 0.01 to 100."""

    @classmethod
    def parse(cls, kind: Kind, text: str) -> Event:
        """`120:3` is worker 3 (counted from 0) at 120 s; of `speed`, `120:3:0.5` halves its speed."""
        pattern = r"([0-9.]+):([0-9]+)" + (r":([0-9.]+)" if kind == "speed" else r"()")
        match = re.fullmatch(pattern, text)
        try:
            if match is not None:
                return cls(float(match[1]), kind, int(match[2]), float(match[3] or 1))
        except ValueError:  # such as 1.2.3
            pass
        form = "SECONDS:WORKER, such as 120:3 for worker 3 at 120 seconds"
        if kind == "speed":
            form = "SECONDS:WORKER:SPEED, such as 120:3:0.5 for half of the speed of worker 3 from 120 s on"
        flag = "change-speed" if kind == "speed" else kind
        raise TraceError(f"--{flag} is {quoted(text)}; it must be {form}")


@dataclasses.dataclass(frozen=True)
class Cut:
    """A time in which a replica of the router hears no others, and they do not hear it."""

    time_s: float
    """Seconds since the first arrival."""
    seconds: float = math.inf
    """How long; then it hears again, and reads what was published in the last 30 seconds."""
    router: int | None = None
    """Counted from 0; None: all of them, an outage of what carries their messages."""

    @classmethod
    def parse(cls, flag: str, text: str) -> Cut:
        """`120:3:30` isolates replica 3 (counted from 0) from 120 s on for 30 s; `120:30` is an outage."""
        isolates = flag == "isolate"
        pattern = r"([0-9.]+):([0-9]+)(?::([0-9.]+))?" if isolates else r"([0-9.]+)()(?::([0-9.]+))?"
        match = re.fullmatch(pattern, text)
        try:
            if match is not None:
                seconds = float(match[3]) if match[3] else math.inf
                return cls(float(match[1]), seconds, int(match[2]) if isolates else None)
        except ValueError:  # such as 1.2.3
            pass
        form = "SECONDS:ROUTER[:DURATION], such as 120:3:30 for router 3 at 120 seconds, for 30 seconds"
        if not isolates:
            form = "SECONDS[:DURATION], such as 120:30 for 30 seconds from 120 seconds on"
        raise TraceError(f"--{flag} is {quoted(text)}; it must be {form}")


@dataclasses.dataclass(frozen=True)
class PeerSync:
    """Replicas of the router that tell each other of their decisions and loads, as the product's do."""

    interval_s: float = 0.25
    """Seconds between what one replica publishes, 0.05 to 60; it reads the others' twice in that time."""
    stride_tokens: int = 256
    """Tokens of a stride of the prompt: others know a decision to so many, or to a block if longer."""
    loss: float = 0.0
    """The share of messages that a replica misses, 0 to 1."""
    decisions_delay_s: float = 0.0
    """Seconds by which decisions, but not loads, come later."""
    cuts: Sequence[Cut] = ()
    """Who hears nothing, and when."""

    def __post_init__(self) -> None:
        _within("stride_tokens", self.stride_tokens, 1, 1 << 20, "a whole number")
        for name, value, least, most in (
            ("interval_s", self.interval_s, 0.05, 60),
            ("loss", self.loss, 0, 1),
            ("decisions_delay_s", self.decisions_delay_s, 0, 3600),
        ):
            if not least <= value <= most:
                raise TraceError(f"{name} is {value:g}; it must be from {least} to {most}")
        for cut in self.cuts:
            if not (math.isfinite(cut.time_s) and cut.time_s >= 0 and cut.seconds > 0):
                raise TraceError(
                    f"a cut begins at {cut.time_s:g} s and lasts {cut.seconds:g} s; it must begin at 0 or "
                    "later and last longer than 0"
                )

    @classmethod
    def parse(cls, text: str, cuts: Sequence[Cut] = ()) -> PeerSync:
        """`0.5:512:0.1` is every 0.5 s, strides of 512 tokens, a tenth of the messages lost."""
        parts = text.split(":")
        try:
            if len(parts) > 3:
                raise ValueError
            return cls(
                interval_s=float(parts[0]),
                stride_tokens=int(parts[1]) if len(parts) > 1 else cls.stride_tokens,
                loss=float(parts[2]) if len(parts) > 2 else cls.loss,
                cuts=cuts,
            )
        except ValueError as error:
            if isinstance(error, TraceError):
                raise
            raise TraceError(
                f"--peer-sync is {quoted(text)}; it must be SECONDS[:STRIDE[:LOSS]], such as 0.25:256:0.1 "
                "for messages each 0.25 seconds, strides of 256 tokens, and a tenth of the messages lost"
            ) from None

    def as_core(self) -> dict[str, Any]:
        """As the C++ core takes it."""
        return {
            "interval_s": float(self.interval_s),
            "stride_tokens": self.stride_tokens,
            "loss": float(self.loss),
            "decisions_delay_s": float(self.decisions_delay_s),
            "cuts": [
                {
                    "time_s": float(cut.time_s),
                    "seconds": min(float(cut.seconds), 1e9),
                    "router": -1 if cut.router is None else cut.router,
                }
                for cut in self.cuts
            ],
        }


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Workers alike but for their speeds, behind one router or several.

    The cache of a worker is `cache_tokens`, or, when that is None, an equal part of `cache_share` times the
    trace's working set, at least 160,000 tokens. Either way the longest request of the trace fits.

    With `prefill` and `decode` the fleet has two stages, each of which has the caches that a fleet of its
    size would have. Of events only wipes may happen to it.
    """

    workers: int = 8
    """How many; of two stages, those of both."""
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
    prompts_first: bool = False
    """A step computes either prompts or next tokens, prompts first: an engine without chunked prefill."""
    whole_responses: bool = False
    """Responses do not stream, so the router sees no first token."""
    speeds: Sequence[float] = ()
    """One per worker; empty: all 1."""
    weights: Sequence[float] = ()
    """What the router takes them for; empty: all 1."""
    events: Sequence[Event] = ()
    """What happens to workers meanwhile."""
    wipe_every_s: float = 0
    """Every so often the next worker in turn loses its cache; 0: never."""
    routers: int = 1
    """Replicas of the router. They know nothing of each other without `peer_sync`."""
    peer_sync: PeerSync | None = None
    """With several replicas: what they tell each other. Only policies that match blocks use decisions; all
    use loads."""
    by_session: bool = False
    """A session's requests come to one replica; otherwise each to any."""
    prefill: int = 0
    """Workers that compute prompts, the first of the fleet; 0: no stages."""
    decode: int = 0
    """Workers that fetch what these have computed, and decode."""
    prefill_cache_tokens: int | None = None
    """Tokens that the cache of a prefill worker holds, if not as many as that of a decode worker."""
    kv_bytes_per_token: float = KV_BYTES_PER_TOKEN
    """Of a transfer: what the engine keeps of a token."""
    link_gb_per_s: float = LINK_GB_PER_S
    """What a worker can send and receive, each, in 10^9 bytes a second."""
    transfer_ms: float = TRANSFER_MS
    """What a transfer takes beside that."""

    def __post_init__(self) -> None:
        if self.prefill or self.decode:
            self._check_stages()
            object.__setattr__(self, "workers", self.prefill + self.decode)
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
        for cut in self.peer_sync.cuts if self.peer_sync is not None else ():
            if cut.router is not None and not 0 <= cut.router < self.routers:
                raise TraceError(
                    f"a cut is for router {cut.router}; with {self.routers} routers the last one is "
                    f"{self.routers - 1}"
                )
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
            if not 0.01 <= event.speed <= 100:
                raise TraceError(f"an event has speed {event.speed:g}; it must be from 0.01 to 100")
        _engine.coefficients(self.engine)
        for name, value in self.coefficients.items():
            if name not in COEFFICIENTS:
                raise TraceError(
                    f"{name} is not a coefficient of the engine"
                    + did_you_mean(name, COEFFICIENTS, f"; they are {', '.join(COEFFICIENTS)}")
                )
            if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
                raise TraceError(f"coefficient {name} is {quoted(value)}; it must be a number, 0 or more")

    def _check_stages(self) -> None:
        for name, value in (("prefill", self.prefill), ("decode", self.decode)):
            _within(name, value, 1, MAX_WORKERS - 1, "a whole number")
        if self.prefill_cache_tokens is not None:
            _within("prefill_cache_tokens", self.prefill_cache_tokens, 0, 1 << 40, "a whole number")
        figures: tuple[tuple[str, float, float], ...] = (
            ("kv_bytes_per_token", self.kv_bytes_per_token, 0),
            ("link_gb_per_s", self.link_gb_per_s, 0.001),
            ("transfer_ms", self.transfer_ms, 0),
        )
        for name, figure, least in figures:
            if not least <= figure <= 1e9:
                raise TraceError(f"{name} is {figure:g}; it must be from {least:g} to 1e9")
        if self.peer_sync is not None:
            raise TraceError(
                "peer_sync is given for a fleet with stages, which does not replay it; leave it out"
            )
        for event in self.events:
            if event.kind != "wipe":
                raise TraceError(
                    f"an event is {quoted(event.kind)}; a fleet with stages has wipes only, since its "
                    "workers neither come nor go"
                )

    @property
    def is_staged(self) -> bool:
        """Whether prompts are computed by some workers and responses by others."""
        return self.prefill > 0

    def cache_blocks(self, trace: Trace) -> int:
        """Blocks in one worker's cache for this trace; of two stages, a decode worker's."""
        return self._cache_blocks(trace, self.cache_tokens, self.decode or self.workers)

    def prefill_cache_blocks(self, trace: Trace) -> int:
        """Blocks in one prefill worker's cache for this trace."""
        tokens = self.cache_tokens if self.prefill_cache_tokens is None else self.prefill_cache_tokens
        return self._cache_blocks(trace, tokens, self.prefill)

    def index_blocks(self, trace: Trace) -> int:
        """Blocks that the router's index remembers of a worker: those of the larger caches."""
        return max(self.cache_blocks(trace), self.prefill_cache_blocks(trace) if self.is_staged else 0)

    def _cache_blocks(self, trace: Trace, tokens: int | None, workers: int) -> int:
        if tokens == 0:
            return 0
        if tokens is None:
            tokens = max(SMALLEST_CACHE_TOKENS, int(self.cache_share * trace.working_set_tokens / workers))
        longest = trace.input_tokens.astype(np.int64) + trace.output_tokens + trace.block_size
        return max(tokens, int(longest.max())) // trace.block_size

    def routing(self) -> dict[str, Any]:
        """What the core takes as properties of the routing."""
        routing: dict[str, Any] = {
            "routers": self.routers,
            "by_session": self.by_session,
            "streams": not self.whole_responses,
        }
        if self.peer_sync is not None and self.routers > 1:
            routing["peer_sync"] = self.peer_sync.as_core()
        return routing

    def as_core(self, trace: Trace) -> dict[str, Any]:
        """As the C++ core takes it."""
        events = list(self.events)
        if self.wipe_every_s > 0:
            times = np.arange(self.wipe_every_s, trace.span_s, self.wipe_every_s)
            events += [Event(float(time), "wipe", turn % self.workers) for turn, time in enumerate(times)]
        staged = {
            "prefill": self.prefill,
            "prefill_cache_blocks": self.prefill_cache_blocks(trace) if self.is_staged else 0,
            "kv_bytes_per_token": float(self.kv_bytes_per_token),
            "link_gb_per_s": float(self.link_gb_per_s),
            "transfer_ms": float(self.transfer_ms),
        }
        return {
            "workers": self.workers,
            "stages": staged if self.is_staged else None,
            "cache_blocks": self.cache_blocks(trace),
            "coefficients": _engine.coefficients(self.engine)
            | {name: float(value) for name, value in self.coefficients.items()},
            "max_running": self.max_running,
            "step_tokens": self.step_tokens,
            "prompts_first": self.prompts_first,
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
