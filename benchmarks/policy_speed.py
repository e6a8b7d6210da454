"""What does a decision of each policy cost, in a small fleet and in a large one?

    PYTHONPATH=build/release/python:. python benchmarks/policy_speed.py [--workers 64 4096] [--policies auto]

One `select` of a prompt of 1 KB with a session header and its `finish`; then `select_batch` of many such.
Times are CPU time of the calling thread, each figure the best of several runs.
"""

from __future__ import annotations

import argparse
import gc
import warnings

from benchmarks.python_select import best
from vllm_router import Router
from vllm_router.router_args import BUILT_POLICIES

PROMPTS = 256


def requests(count: int) -> tuple[list[str], list[str]]:
    """Prompts of 1 KB that share a beginning, and as many sessions."""
    beginning = "System: answer briefly and name your sources. " * 8
    prompts = [(beginning + f"User {i}: " + f"word{i} " * 200)[:1024] for i in range(PROMPTS)]
    return [prompts[i % PROMPTS] for i in range(count)], [f"session-{i}" for i in range(count)]


def measure(policy: str, workers: int, decisions: int) -> tuple[float, float]:
    """Seconds of one select and its finish, and of one row of a batch."""
    calls = max(PROMPTS, decisions // workers)
    prompts, sessions = requests(calls)
    headers = [{"X-Session-ID": session} for session in sessions]
    router = Router(policy, [f"http://w{i}:8000" for i in range(workers)], seed=1)

    def one_by_one() -> None:
        for prompt, header in zip(prompts, headers, strict=True):
            router.select(prompt=prompt, headers=header).finish()

    def batch() -> None:
        router.select_batch(prompts, session_ids=sessions).finish()

    one_by_one()
    repeat = max(3, decisions // calls // 16)
    return best(one_by_one, repeat) / calls, best(batch, repeat) / calls


def main(argv: list[str] | None = None) -> None:
    """Print a line for each policy and fleet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, nargs="+", default=[64, 4096])
    parser.add_argument("--policies", nargs="+", choices=BUILT_POLICIES, default=list(BUILT_POLICIES))
    parser.add_argument("--calls", type=int, default=100_000, help="decisions per policy, in all")
    args = parser.parse_args(argv)
    gc.disable()
    warnings.simplefilter("ignore")
    print(f"{'workers':>7} {'policy':20} {'select + finish':>16} {'select_batch':>14}")
    for workers in args.workers:
        for policy in args.policies:
            single, row = measure(policy, workers, args.calls)
            print(f"{workers:7} {policy:20} {single * 1e6:13.2f} us {1e-6 / row:11.3f} M/s", flush=True)


if __name__ == "__main__":
    main()
