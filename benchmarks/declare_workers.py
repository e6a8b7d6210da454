"""How long does a fleet take to change when a source declares all its workers?

    PYTHONPATH=build/release/python:. python benchmarks/declare_workers.py [--workers 4096] [--policies auto]

`Router.reconcile()` of a list of new workers, of the same list again, and of that list with one worker whose
engine has started anew. Each returns once the new fleet is published, with all that the policy makes of it.
Without a server workers join without a health check. Times are wall-clock time: best, median and worst of
several runs, each with a router of its own. On a machine with other work only the best says much.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Sequence

from vllm_router import Router
from vllm_router.discovery import WorkerSpec
from vllm_router.router_args import BUILT_POLICIES

POLICIES = ("auto", "consistent_hash", "cache_aware", "prefix_aware", "round_robin")
CASES = ("all at once", "again", "one changed")


def spec(number: int, incarnation: str = "1") -> WorkerSpec:
    """A pod, as the Kubernetes source declares it."""
    return WorkerSpec(
        f"http://10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:8000",
        incarnation=f"uid-of-{number}/{incarnation}",
        labels={"pod": f"models/vllm-{number}"},
    )


def measure(policy: str, workers: int) -> tuple[float, float, float]:
    """Seconds of each case."""
    specs = [spec(number) for number in range(workers)]
    changed = list(specs)
    changed[workers // 2] = spec(workers // 2, "2")
    router = Router(policy, seed=1)
    seconds = []
    for declared in (specs, specs, changed):
        begun = time.perf_counter()
        difference = router.reconcile("benchmark", declared)
        seconds.append(time.perf_counter() - begun)
        if declared is changed:
            assert difference.changed == [changed[workers // 2].url], difference
    # In a full fleet the one that has started anew waits for the next list.
    assert len(router.worker_urls) >= workers - 1
    return seconds[0], seconds[1], seconds[2]


def main(argv: list[str] | None = None) -> None:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=4096)
    parser.add_argument("--policies", nargs="+", choices=BUILT_POLICIES, default=list(POLICIES))
    parser.add_argument("--runs", type=int, default=11)
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    print(f"{args.workers} workers; best, median and worst of {args.runs} runs, ms")
    print(f"{'policy':20}" + "".join(f"{case:>24}" for case in CASES))
    for policy in args.policies:
        runs = zip(*(measure(policy, args.workers) for _ in range(args.runs)), strict=True)
        print(f"{policy:20}" + "".join(" " + figures(case) for case in runs), flush=True)


def figures(seconds: Sequence[float]) -> str:
    """Best, median and worst in milliseconds, 23 characters wide."""
    three = (min(seconds), statistics.median(seconds), max(seconds))
    return "".join(f"{one * 1e3:7.1f}" for one in three).rjust(23)


if __name__ == "__main__":
    main()
