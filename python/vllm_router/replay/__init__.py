"""Replay: what a policy would do to your traffic, before it does it.

    from vllm_router.replay import Fleet, read_trace, run

    rows = run(read_trace("trace.jsonl"), ["all"], Fleet(workers=8), load=0.85, seeds=3)
    pandas.DataFrame(rows).pivot_table("ttft_p90_s", "policy")

The policies are the router's own objects, in front of simulated engines, in simulated time: an hour of
traffic takes less than a second. The command is `vllm-router replay`; docs/reference/replay.md has both.
"""

from vllm_router.replay.admission import Admission
from vllm_router.replay.capacity import Capacity, capacity
from vllm_router.replay.fleet import Cut, Event, Fleet, PeerSync, read_engine
from vllm_router.replay.holdout import Holdout
from vllm_router.replay.policies import PolicySpec, parse_policies
from vllm_router.replay.programs import Programs
from vllm_router.replay.readers import FORMATS, read_trace
from vllm_router.replay.runner import Progress, Row, run
from vllm_router.replay.trace import Trace, TraceError
from vllm_router.replay.workloads import WORKLOADS, generate

__all__ = [
    "Admission",
    "Capacity",
    "Cut",
    "Event",
    "FORMATS",
    "Fleet",
    "Holdout",
    "PeerSync",
    "PolicySpec",
    "Programs",
    "Progress",
    "Row",
    "Trace",
    "TraceError",
    "WORKLOADS",
    "capacity",
    "generate",
    "parse_policies",
    "read_engine",
    "read_trace",
    "run",
]
