"""Capacity: how much traffic a fleet can take, so that "85 % load" means the same for every trace and fleet.

SLO        4 times the p90 time to first token at a tenth of the load that saturates the fleet
goodput    of a policy: the highest rate at which its p90 stays within the SLO, bisected to 2 %
capacity   the goodput of the best of a few policies
load       a rate as a fraction of the capacity
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vllm_router.replay import _engine
from vllm_router.replay.fleet import Fleet
from vllm_router.replay.policies import PolicySpec
from vllm_router.replay.trace import Trace, TraceError
from vllm_router.settings.policies import BUILT_POLICIES

PRECISION = 0.02
SLO_FACTOR = 4
LIGHT_LOAD = 0.1
# A rate so much below what saturates the fleet is none.
SMALLEST_SHARE = 0.001
# So many requests under way per worker keep every worker busy.
CLOSED_LOOP = 32

# Whose goodput is the capacity: each the best somewhere. Those that a build lacks are left out.
YARDSTICKS = (
    PolicySpec("auto"),
    PolicySpec("compare_smg"),
    PolicySpec("compare_lmetric", {"events_delay_s": 0.05}),
    PolicySpec("vllm_cache_aware"),
    PolicySpec("least_load"),
)
MOST_YARDSTICKS = 3


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What a fleet can take of a trace."""

    rate: float
    """Requests a second."""
    slo_s: float
    """Bound on the p90 time to first token."""
    policy: str
    """Whose goodput it is."""


def yardsticks(*, staged: bool = False) -> list[PolicySpec]:
    """The policies that capacity is measured with; comparison policies choose no pairs of workers."""
    known = BUILT_POLICIES if staged else (*BUILT_POLICIES, *_engine.comparison_policies())
    return [spec for spec in YARDSTICKS if spec.name in known][:MOST_YARDSTICKS]


class Prober:
    """Asks for the p90 of policies at rates. One trace, fleet and seed."""

    def __init__(
        self, trace: Trace, fleet: Fleet, seed: int, tick: Callable[[], None] = lambda: None
    ) -> None:
        trace.prepare()
        self._trace = trace
        self._fleet = fleet
        self._seed = seed
        self._tick = tick

    def _run(self, policy: PolicySpec, trace: Trace, closed_loop: int = 0) -> dict[str, object]:
        self._tick()
        arrays = trace.as_core() | {"closed_loop": closed_loop}
        routing = self._fleet.routing() | policy.as_core(
            trace.block_size, self._fleet.index_blocks(trace), self._seed
        )
        return _engine.simulate(arrays, routing, self._fleet.as_core(trace))

    def saturating_rate(self, policy: PolicySpec) -> float:
        """Requests a second that end while the fleet always has more than it can take."""
        result = self._run(policy, self._trace.at_rate(1), CLOSED_LOOP * self._fleet.workers)
        ends = np.sort(np.asarray(result["arrival_s"]) + np.asarray(result["e2e_s"]))
        ends = ends[np.isfinite(ends)]
        # The middle: it fills up at first and empties out at last.
        first, last = ends[len(ends) // 10], ends[len(ends) * 9 // 10]
        return 0.8 * len(ends) / float(last - first) if last > first else float(len(ends))

    def p90_s(self, policy: PolicySpec, rate: float) -> float:
        """The p90 time to first token at a rate."""
        ttft = np.asarray(self._run(policy, self._trace.at_rate(rate))["ttft_s"])
        return percentile(np.where(np.isnan(ttft), np.inf, ttft), 0.9)

    def slo_s(self, policy: PolicySpec, saturating_rate: float) -> float:
        """The bound that follows from an almost idle fleet."""
        return SLO_FACTOR * self.p90_s(policy, LIGHT_LOAD * saturating_rate)

    def goodput(self, policy: PolicySpec, slo_s: float, guess: float, at_least: float = 0) -> float:
        """The highest rate within the bound. One not above `at_least` is not looked for: 0."""
        if at_least > 0 and self.p90_s(policy, at_least * (1 + PRECISION)) > slo_s:
            return 0
        smallest = SMALLEST_SHARE * guess
        low, high = at_least, max(guess, at_least * (1 + 2 * PRECISION))
        while self.p90_s(policy, high) <= slo_s:
            low, high = high, 2 * high
            if high > 1e7:
                raise TraceError(
                    "no rate saturates this fleet, so its capacity is unknown; set --rate instead of --load"
                )
        while high - low > PRECISION * high and high > smallest:
            middle = (low + high) / 2
            if self.p90_s(policy, middle) <= slo_s:
                low = middle
            else:
                high = middle
        return low


def capacity(
    trace: Trace,
    fleet: Fleet,
    *,
    seed: int = 1,
    slo_s: float | None = None,
    policies: Sequence[PolicySpec] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Capacity:
    """What a fleet can take of a trace.

    Args:
        trace: The requests; their times are stretched.
        fleet: The workers.
        seed: Of the policies' random choices.
        slo_s: Bound on the p90 time to first token; None makes it 4 times that of an almost idle fleet.
        policies: Whose best goodput it is; None is a few that are the best somewhere.
        tick: Called before each run.
    """
    policies = list(policies or yardsticks(staged=fleet.is_staged))
    prober = Prober(trace, fleet, seed, tick)
    saturating = prober.saturating_rate(policies[0])
    if slo_s is None:
        slo_s = prober.slo_s(policies[0], saturating)
    best, whose = 0.0, policies[0]
    for policy in policies:
        found = prober.goodput(policy, slo_s, saturating, at_least=best)
        if found > best:
            best, whose = found, policy
    if best == 0:
        raise TraceError(
            f"the p90 time to first token exceeds the SLO of {slo_s:g} s at every rate; set a larger --slo"
        )
    return Capacity(best, slo_s, whose.label)


def percentile(values: NDArray[np.float64], share: float) -> float:
    """The smallest value that at least this share of the values do not exceed; NaN without values."""
    if len(values) == 0:
        return float("nan")
    return float(np.sort(values)[max(0, int(np.ceil(share * len(values))) - 1)])
