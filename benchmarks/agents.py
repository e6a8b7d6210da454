#!/usr/bin/env python3
"""Recorded coding agents through a router: does a session stay on its worker, and how much of it is found?

    PYTHONPATH=build/release/python:. .venv/bin/python benchmarks/agents.py
    ... benchmarks/agents.py --agents codex_0.171.0 --policies auto cache_aware --workers 5

Each agent's recording (tests/data/agents) is sent anew, one request after the other, to a router with
simulated workers that respond at once. A row has the workers of a session, on average and at most, the share
of all prompts that the policy took the chosen workers to hold, what the recording itself allows, and the
share of tokens that the workers reported as cached. Nothing here is a time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.fakes.agent_replay import BLOCK_BYTES, allowed, replay
from tests.fakes.recorded_agents import AGENTS, recorded

POLICIES = ("auto", "cache_aware", "vllm_cache_aware", "prefix_aware", "consistent_hash")


def row(agent: str, policy: str, workers: int) -> str:
    requests = recorded(agent)
    done = replay(requests, policy, workers)
    visited = [len(urls) for urls in done.workers_of_sessions()]
    matched = done.share_matched
    cells = (
        agent,
        policy,
        str(len(visited)),
        f"{sum(visited) / len(visited):.2f}",
        str(max(visited)),
        "–" if matched is None else f"{matched:.3f}",
        f"{allowed(requests, BLOCK_BYTES.get(policy, 1)):.3f}",
        f"{done.share_cached:.3f}",
    )
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=AGENTS, metavar="AGENT")
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="POLICY")
    parser.add_argument("--workers", type=int, default=3, metavar="N")
    args = parser.parse_args(argv)
    print("| agent | policy | sessions | workers per session | at most | matched | allowed | cached |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for agent in args.agents:
        for policy in args.policies:
            print(row(agent, policy, args.workers), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
