"""What does a decision cost from Python? One `select` with its `finish`, and a `select_batch` of many.

    PYTHONPATH=build/bench/python python benchmarks/python_select.py [--workers 8] [--json]

Times are CPU time of the calling thread, so a busy machine disturbs them little; each figure is the best of
many short runs. `chosen` is a checksum of the workers chosen, the same for the same arguments everywhere.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from vllm_router import Router

TARGET_SELECT_US = 3.0
TARGET_CHOICES_PER_S = 1e6

CHAT = {
    "model": "llama-3",
    "messages": [{"role": "user", "content": "Why is the sky blue?"}],
    "max_tokens": 64,
}
SESSION = {"X-Session-ID": "conversation-12345"}
CLIENT_HEADERS = {
    "Host": "router:30000",
    "User-Agent": "OpenAI/Python 1.99",
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate",
    "Connection": "keep-alive",
    "Content-Type": "application/json",
    "Content-Length": "97",
    "Authorization": "Bearer x",
    "X-Stainless-Lang": "python",
    **SESSION,
}

# Policy and its options; what select() is told.
SELECTS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("random", {}, "prompt", {"prompt": "Hello"}),
    ("round_robin", {}, "prompt", {"prompt": "Hello"}),
    ("least_load", {}, "prompt", {"prompt": "Hello"}),
    ("least_load", {}, "body, bytes", {"body": json.dumps(CHAT).encode()}),
    ("power_of_two", {}, "prompt", {"prompt": "Hello"}),
    ("consistent_hash", {}, "prompt", {"prompt": "Hello"}),
    ("consistent_hash", {}, "prompt, 1 header", {"prompt": "Hello", "headers": SESSION}),
    ("consistent_hash", {}, "prompt, 10 headers", {"prompt": "Hello", "headers": CLIENT_HEADERS}),
    ("consistent_hash", {}, "body, bytes", {"body": json.dumps(CHAT).encode()}),
    ("consistent_hash", {}, "body, dict", {"body": CHAT}),
    ("consistent_hash", {}, "messages", {"messages": CHAT["messages"], "model": "llama-3"}),
    ("consistent_hash", {}, "1,000 token ids", {"token_ids": np.arange(1000, dtype=np.uint32)}),
    (
        "consistent_hash",
        {"hash_function": "xxh3"},
        "prompt, 1 header",
        {"prompt": "Hello", "headers": SESSION},
    ),
    ("rendezvous_hash", {}, "prompt, 1 header", {"prompt": "Hello", "headers": SESSION}),
    (
        "rendezvous_hash",
        {"hash_function": "xxh3"},
        "prompt, 1 header",
        {"prompt": "Hello", "headers": SESSION},
    ),
]
BATCHES: list[tuple[str, dict[str, Any]]] = [
    ("consistent_hash", {}),
    ("consistent_hash", {"hash_function": "xxh3"}),
    ("consistent_hash", {"hash_load_factor": 1.25}),
    ("rendezvous_hash", {}),
    ("rendezvous_hash", {"hash_function": "xxh3"}),
    ("least_load", {}),
]


def best(run: Callable[[], None], repeat: int) -> float:
    """CPU seconds of the fastest of `repeat` runs."""
    seconds = []
    for _ in range(repeat):
        begin = time.thread_time_ns()
        run()
        seconds.append((time.thread_time_ns() - begin) / 1e9)
    return min(seconds)


def measure_select(router: Router, request: dict[str, Any], calls: int, repeat: int) -> float:
    """Microseconds of one select and its finish."""
    select = router.select

    def run() -> None:
        for _ in range(calls):
            select(**request).finish()

    def empty() -> None:
        for _ in range(calls):
            pass

    return (best(run, repeat) - best(empty, repeat)) / calls * 1e6


def label(policy: str, options: dict[str, Any]) -> str:
    """`consistent_hash hash_function=xxh3`."""
    return " ".join([policy, *(f"{name}={value}" for name, value in options.items())])


def main(argv: list[str] | None = None) -> None:
    """Print both tables, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--calls", type=int, default=2_000, help="selects per run")
    parser.add_argument("--repeat", type=int, default=100, help="runs, of which the fastest counts")
    parser.add_argument("--batch", type=int, default=100_000, help="choices per select_batch")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    args = parser.parse_args(argv)
    urls = [f"http://w{i}:8000" for i in range(args.workers)]
    gc.disable()

    selects = []
    for policy, options, what, request in SELECTS:
        router = Router(policy, urls, seed=1, **options)
        microseconds = measure_select(router, request, args.calls, args.repeat)
        selects.append({"policy": label(policy, options), "request": what, "us": round(microseconds, 3)})
        assert sum(worker.load for worker in router.workers) == 0

    sessions = [f"conversation-{i}" for i in range(args.batch)]
    batches = []
    for policy, options in BATCHES:
        router = Router(policy, urls, seed=1, **options)
        batch = router.select_batch(session_ids=sessions)
        chosen = zlib.crc32(batch.workers.tobytes())
        del batch  # its load returns, so every run starts from none
        seconds = best(
            lambda router=router: router.select_batch(session_ids=sessions).finish(),
            max(1, args.repeat // 10),
        )
        batches.append(
            {
                "policy": label(policy, options),
                "choices_per_s": round(args.batch / seconds),
                "chosen": f"{chosen:08x}",
            }
        )
        assert sum(worker.load for worker in router.workers) == 0

    if args.json:
        print(json.dumps({"workers": args.workers, "select_finish": selects, "select_batch": batches}))
        return
    print(f"{args.workers} workers; select + finish, target below {TARGET_SELECT_US} us\n")
    for row in selects:
        print(f"  {row['policy']:<38} {row['request']:<20} {row['us']:6.2f} us")
    target = TARGET_CHOICES_PER_S / 1e6
    print(f"\nselect_batch of {args.batch:,} session ids + finish, target above {target} M/s\n")
    for row in batches:
        print(f"  {row['policy']:<38} {row['choices_per_s'] / 1e6:6.2f} M/s   chosen {row['chosen']}")


if __name__ == "__main__":
    main()
