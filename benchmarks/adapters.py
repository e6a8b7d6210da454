"""What do adapters cost, and what does verl gain by one?

    PYTHONPATH=build/bench/python python benchmarks/adapters.py [--workers 8] [--json]

Picks: CPU time of the thread for a pick with its outcome, without what the host does around it (fakes stand
for the hosts); the best of several runs.

Rollouts: `--samples` trajectories of a random number of turns for each of `--prompts` prompts, replayed on
`--workers` servers whose caches never fill: by each policy through `vllm_router.verl`, and by what verl does
itself (a trajectory stays, a new one goes where the fewest are in flight). A turn takes, with r turns running
on its server when it begins, and all times in seconds:

    (prompt tokens that are not cached) / 8000 + (output tokens) * (0.01 + 0.0005 r)
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import litellm_host, ray_host
from vllm_router import hash_blocks
from vllm_router.verl import VllmRouter

SIZES = (2_000, 40_000)
POLICIES = ("cache_aware", "auto", "sticky_least_loaded", "least_load")
BLOCK = 16


def cpu_us(call: Callable[[], None], calls: int, repeat: int) -> float:
    """Of one call, in microseconds."""
    best = float("inf")
    for _ in range(repeat):
        begun = time.thread_time_ns()
        for _ in range(calls):
            call()
        best = min(best, (time.thread_time_ns() - begun) / calls / 1000)
    return best


def litellm_pick(workers: int, size: int) -> Callable[[], None]:
    """A pick, with its success."""
    with litellm_host.load() as adapter:
        host = litellm_host.FakeRustCore(*(f"http://worker-{n}:8000/v1" for n in range(workers)))
        adapter.install(host, policy="auto")
        strategy = adapter._strategies[host]
        messages = [{"role": "user", "content": "x y z " * (size // 6)}]

        def call() -> None:
            request: dict[str, Any] = {"litellm_trace_id": "t", "metadata": {}}
            found = strategy._pick("m", host.healthy, {"messages": messages, "request_kwargs": request})
            adapter.proxy_handler.log_success_event(litellm_host.event(request, found), None)

        call.__dict__["kept"] = host
        return call


def ray_pick(workers: int, size: int) -> Callable[[], None]:
    """`choose_replicas`, with what is told afterwards."""
    with ray_host.load() as adapter:
        router = adapter.VllmRequestRouter()
        router.initialize_state(policy="auto")
        fleet = [ray_host.RunningReplica(f"replica{n}") for n in range(workers)]
        router.update_replicas(fleet)
    body = {"messages": [{"role": "user", "content": "x y z " * (size // 6)}], "model": "m"}

    def call() -> None:
        request = ray_host.PendingRequest([body], {}, ray_host.Metadata("r"))
        pick = router.choose_replicas(fleet, request)
        try:
            pick.send(None)
        except StopIteration as done:
            replica = done.value[0][0].replica_id
        router.on_request_routed(request, replica, None)
        router.on_request_completed(replica, "r")

    return call


def verl_pick(workers: int, size: int) -> Callable[[], None]:
    """`acquire_server` with four bytes a token, and `release_server`."""
    router = VllmRouter({f"server {n}": n for n in range(workers)}, {"policy": "cache_aware"})
    prompt = list(range(size // 4))

    def call() -> None:
        server, _ = router.acquire_server("t", prompt_ids=prompt)
        router.release_server(server, request_id="t")

    return call


class LeastInFlight:
    """verl's own placement: a trajectory stays where it is, a new one goes where the fewest are in flight."""

    def __init__(self, servers: int) -> None:
        self._in_flight = dict.fromkeys(range(servers), 0)
        self._places: dict[str, int] = {}
        self._rng = random.Random(1)

    def acquire_server(self, request_id: str, prompt_ids: list[int]) -> tuple[str, int]:
        del prompt_ids
        fewest = min(self._in_flight.values())
        among = [server for server, count in self._in_flight.items() if count == fewest]
        server = self._places.setdefault(request_id, self._rng.choice(among))
        self._in_flight[server] += 1
        return str(server), server

    def release_server(self, server_id: str, request_id: str) -> None:
        del request_id
        self._in_flight[int(server_id)] -= 1


@dataclass
class Trajectory:
    """One sample: what it has said so far, and how many turns are left."""

    name: str
    tokens: list[int]
    turns: int


@dataclass
class Replay:
    """Counts of one replay."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    turn_s: list[float] = field(default_factory=list)
    most: int = 0
    end_s: float = 0.0


def rollouts(place: Any, servers: int, prompts: int, samples: int, length: int) -> dict[str, Any]:
    """Replay the groups; the servers' caches are sets of prefixes in blocks."""
    rng = random.Random(7)
    groups = [[rng.randrange(100_000) for _ in range(length)] for _ in range(prompts)]
    trajectories = [
        Trajectory(f"{g}/{n}", list(prompt), 1 + min(11, int(rng.expovariate(0.25))))
        for g, prompt in enumerate(groups)
        for n in range(samples)
    ]
    caches: list[set[int]] = [set() for _ in range(servers)]
    running = [0] * servers
    told = Replay()
    events: list[tuple[float, int, str, Any]] = [(0.0, n, "turn", t) for n, t in enumerate(trajectories)]
    number = len(events)
    while events:
        now, _, what, about = heapq.heappop(events)
        number += 1
        if what == "turn":
            name, server = place.acquire_server(about.name, prompt_ids=about.tokens)
            names = hash_blocks(about.tokens, BLOCK).tolist()
            held = 0
            while held < len(names) and names[held] in caches[server]:
                held += 1
            caches[server].update(names)
            running[server] += 1
            told.most = max(told.most, running[server])
            told.prompt_tokens += len(about.tokens)
            told.cached_tokens += held * BLOCK
            output = 100 + rng.randrange(400)
            took = (len(about.tokens) - held * BLOCK) / 8000 + output * (0.01 + 0.0005 * running[server])
            told.turn_s.append(took)
            heapq.heappush(events, (now + took, number, "end", (about, name, server, output)))
            continue
        trajectory, name, server, output = about
        place.release_server(name, request_id=trajectory.name)
        running[server] -= 1
        told.end_s = max(told.end_s, now)
        trajectory.turns -= 1
        if trajectory.turns > 0:  # a tool takes a second, and says 200 tokens
            trajectory.tokens += [rng.randrange(100_000) for _ in range(output + 200)]
            heapq.heappush(events, (now + 1.0, number, "turn", trajectory))
    return {
        "cached_share": told.cached_tokens / told.prompt_tokens,
        "computed_tokens": told.prompt_tokens - told.cached_tokens,
        "mean_turn_s": sum(told.turn_s) / len(told.turn_s),
        "most_in_flight": told.most,
        "end_s": told.end_s,
    }


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--length", type=int, default=4000, help="tokens of a prompt")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    picks = {
        name: {size: cpu_us(make(args.workers, size), args.calls, args.repeat) for size in SIZES}
        for name, make in (("litellm", litellm_pick), ("ray", ray_pick), ("verl", verl_pick))
    }
    shape = (args.workers, args.prompts, args.samples, args.length)
    replayed = {"verl's own": rollouts(LeastInFlight(args.workers), *shape)}
    for policy in POLICIES:
        servers = {str(n): n for n in range(args.workers)}
        replayed[policy] = rollouts(VllmRouter(servers, {"policy": policy, "seed": 1}), *shape)
    if args.json:
        print(json.dumps({"pick_us": picks, "rollouts": replayed}))
        return
    print(f"CPU of a pick and its outcome, microseconds, {args.workers} workers")
    for name, by_size in picks.items():
        print(f"  {name:<8}" + "".join(f"  {size // 1000:>3} KB {us:7.1f}" for size, us in by_size.items()))
    print(
        f"{args.prompts} prompts of {args.length} tokens, {args.samples} samples each, {args.workers} servers"
    )
    for name, row in replayed.items():
        print(
            f"  {name:<20} cached {row['cached_share']:.3f}  computed {row['computed_tokens']:>9,} tokens"
            f"  mean turn {row['mean_turn_s']:.2f} s  most in flight {row['most_in_flight']:>3}"
            f"  end {row['end_s']:.0f} s"
        )


if __name__ == "__main__":
    main()
