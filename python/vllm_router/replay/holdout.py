"""A hold-out in a replay: a baseline routes some conversations, and the others show what the policy changes.

    policy ──── 95 % of conversations ──┐
                                        ├──▶ one fleet ──▶ effect of the policy on a conversation
    baseline ──  5 % ───────────────────┘

The estimate is that of the router's `--holdout-percent` (docs/how-to/measure_what_the_policy_saves.md): the
effect on one conversation while all others are as they were, not that of switching the fleet.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_router.replay import _engine
from vllm_router.replay.trace import Trace, TraceError

BASELINES = ("least_load", "power_of_two", "random")
MAX_PERCENT = 50

# As the router's strata: bytes of a first request, four for each token.
_BYTES_PER_TOKEN = 4


@dataclasses.dataclass(frozen=True)
class Effect:
    """Policy minus held out, and the 95 % interval that holds at every look."""

    estimate: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, eq=False)
class Conversations:
    """Sessions of a run, n of them, in the order in which their last requests came."""

    held_out: NDArray[np.bool_]
    stratum: NDArray[np.uint8]
    """A power of two of the first request's size."""
    cached_share: NDArray[np.float64]
    """Of the prompt tokens of its finished requests; NaN without one."""
    log_ttft: NDArray[np.float64]
    """Mean natural logarithm of seconds to first token, of all requests but the first; NaN without one."""

    @classmethod
    def of(cls, trace: Trace, result: dict[str, Any]) -> Conversations:
        """From what `simulate` returned."""
        rows = np.arange(len(trace))
        session = trace.session_ids if trace.session_ids is not None else rows
        _, of_row = np.unique(session, return_inverse=True)
        count = int(of_row.max()) + 1
        first, last = np.full(count, len(trace)), np.full(count, -1)
        np.minimum.at(first, of_row, rows)
        np.maximum.at(last, of_row, rows)
        inputs = trace.input_tokens.astype(np.float64)
        ttft = np.asarray(result["ttft_s"])
        finished = np.isfinite(np.asarray(result["e2e_s"]))
        prompt = np.bincount(of_row[finished], inputs[finished], count)
        hits = np.bincount(of_row[finished], np.asarray(result["hit_tokens"])[finished], count)
        timed = np.isfinite(ttft) & (rows != first[of_row])
        sums = np.bincount(of_row[timed], np.log(np.maximum(ttft[timed], 1e-6)), count)
        times = np.bincount(of_row[timed], minlength=count)
        size = _BYTES_PER_TOKEN * np.maximum(1.0, inputs[first])
        order = np.argsort(last, kind="stable")
        with np.errstate(invalid="ignore", divide="ignore"):
            return cls(
                held_out=np.asarray(result["held_out"], bool)[first][order],
                stratum=(np.floor(np.log2(size)) + 1).astype(np.uint8)[order],
                cached_share=(hits / prompt)[order],
                log_ttft=(sums / times)[order],
            )


@dataclasses.dataclass(frozen=True)
class Holdout:
    """Which conversations a baseline routes.

    Args:
        percent: How many of 100, from 0.01 to 50; the seed of a run decides which.
        policy: The baseline, one of BASELINES.

    Raises:
        TraceError: one of them does not fit.
    """

    percent: float
    policy: str = BASELINES[0]

    def __post_init__(self) -> None:
        if not 0.01 <= self.percent <= MAX_PERCENT:
            raise TraceError(
                f"holdout is {self.percent:g}; it is a percentage of conversations and must be from 0.01 to "
                f"{MAX_PERCENT}"
            )
        if self.policy not in BASELINES:
            raise TraceError(f"holdout_policy is {self.policy}; it must be one of {', '.join(BASELINES)}")

    @property
    def share(self) -> float:
        """Of conversations that are held out, in steps of 0.0001."""
        return round(self.percent * 100) / 10_000

    def check_stages(self, staged: bool) -> None:
        """A TraceError in front of prefill and decode workers."""
        if staged:
            raise TraceError(
                "holdout is given for a fleet of prefill and decode workers, which no baseline chooses; "
                "leave it out"
            )

    def as_core(self) -> dict[str, Any]:
        """As the C++ core takes it."""
        return {"holdout_percent": self.share * 100, "holdout_policy": self.policy}

    def effect(self, found: Conversations, values: NDArray[np.float64]) -> Effect | None:
        """Of one value per conversation, NaN: none; None before 100 held-out conversations."""
        known = ~np.isnan(values)
        made = _engine.core().estimate_effect(
            self.share, found.stratum[known], found.held_out[known], values[known]
        )
        return None if made is None else Effect(*made)

    def estimate(self, trace: Trace, result: dict[str, Any]) -> dict[str, Any]:
        """The columns of a row."""
        found = Conversations.of(trace, result)
        cached = self.effect(found, found.cached_share)
        ttft = self.effect(found, found.log_ttft)
        return {
            "holdout_percent": self.share * 100,
            "holdout_policy": self.policy,
            "holdout_conversations": int(found.held_out.sum()),
            "policy_conversations": int((~found.held_out).sum()),
            **_columns("holdout_cached_share", cached, float),
            **_columns("holdout_ttft_ratio", ttft, math.exp),
        }


def _columns(name: str, effect: Effect | None, scale: Any) -> dict[str, float | None]:
    values = (None, None, None) if effect is None else dataclasses.astuple(effect)
    return {
        name + end: None if value is None else scale(value)
        for end, value in zip(("", "_low", "_high"), values, strict=True)
    }


def sentence_of(row: dict[str, Any]) -> str:
    """What the hold-out of one run shows."""
    counts = (
        f"{row['policy']}, seed {row['seed']}: {row['holdout_conversations']:,} conversations held out for "
        f"{row['holdout_policy']}, {row['policy_conversations']:,} not"
    )
    if row["holdout_cached_share"] is None:
        return f"{counts}; too few for an estimate, which takes 100"
    share = "cached share {:+.3f} ({:+.3f} to {:+.3f})".format(
        *(row[f"holdout_cached_share{end}"] for end in ("", "_low", "_high"))
    )
    if row["holdout_ttft_ratio"] is None:
        return f"{counts}; {share}"
    ratio = "time to first token of later turns x {:.2f} ({:.2f} to {:.2f})".format(
        *(row[f"holdout_ttft_ratio{end}"] for end in ("", "_low", "_high"))
    )
    return f"{counts}; {share}, {ratio}"
