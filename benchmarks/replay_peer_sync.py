"""What several routers lose, and what telling each other gives back: python benchmarks/replay_peer_sync.py

Each request comes to any of the routers. Goodput is the highest rate at which the p90 time to first token
stays within the bound of the usual fleet (docs/reference/replay.md, "Terms"), as a share of one router's of
the same seed. The columns:

    alone      the routers tell each other nothing
    told       decisions and loads each 0.25 s, in strides of 256 tokens: the defaults
    lossy      a tenth of the messages is lost
    late       decisions come 10 s late, loads do not
    outage     what carries the messages is down for good: loads are polled, holders assumed
    hit        hit share of `told` less that of one router, in points, at a load of 0.85

The bars of each column are those of BARS; the worst seed decides. Conversation is measured when its trace is
named by --trace or REPLAY_TRACE, as by benchmarks/replay_bars.py.

Exit status: 0 when every bar that was measured holds, 1 when one does not, 2 for a mistake.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

from benchmarks.replay_bars import AUTO, CONVERSATION, Bench, Setting
from benchmarks.replay_events import measured, options_of, parser_of, span
from vllm_router.replay import Cut, PeerSync, run

ONE = Setting("1 router")
TOLD = PeerSync()
SYNCS = {
    "alone": None,
    "told": TOLD,
    "lossy": dataclasses.replace(TOLD, loss=0.1),
    "late": dataclasses.replace(TOLD, decisions_delay_s=10.0),
    "outage": dataclasses.replace(TOLD, cuts=(Cut(0.0),)),
}
WORKLOADS = (CONVERSATION, "rag", "chat")
# By routers and column: the least share, or the most where it is the control that must fail.
BARS: dict[tuple[int, str], dict[str, float]] = {
    (4, "told"): dict.fromkeys(WORKLOADS, 0.95),
    (16, "told"): dict.fromkeys(WORKLOADS, 0.94),
    (4, "lossy"): dict.fromkeys(WORKLOADS, 0.94),
    (4, "late"): dict.fromkeys(WORKLOADS, 0.94),
    (4, "outage"): {CONVERSATION: 0.90, "rag": 0.80, "chat": 0.87},
    (4, "hit"): dict.fromkeys(WORKLOADS, -2.5),
}
CONTROL = {CONVERSATION: 0.80, "rag": 0.70, "chat": 0.90}


def figures(bench: Bench, workload: str, routers: int, seed: int) -> dict[str, float]:
    """By column."""
    own = bench.goodput(workload, ONE, AUTO, seed)
    row = {}
    for name, sync in SYNCS.items():
        setting = Setting(f"{routers} routers, {name}", routers=routers, peer_sync=sync)
        row[name] = bench.goodput(workload, setting, AUTO, seed) / own
    rate = 0.85 * bench.capacity(workload, ONE, seed).rate
    shares = []
    for setting in (Setting(routers=routers, peer_sync=TOLD), ONE):
        trace = bench.trace(workload, seed)
        (found,) = run(trace, [AUTO], setting.fleet(workload), rate=rate, seeds=[seed], jobs=1)
        shares.append(float(found["hit_share"]))
    row["hit"] = 100 * (shares[0] - shares[1])
    return row


def misses(workload: str, routers: int, columns: dict[str, list[float]]) -> list[str]:
    """What does not hold, in words."""
    missed = []
    for (of_routers, name), least in BARS.items():
        worst = min(columns[name])
        if of_routers == routers and workload in least and worst < least[workload]:
            missed.append(f"{workload}, {routers} routers, {name}: {worst:.2f} is below {least[workload]:g}")
    best = max(columns["alone"])
    if routers == 4 and best > CONTROL[workload]:
        missed.append(
            f"{workload}, {routers} routers, alone: {best:.2f} is above {CONTROL[workload]:g}; the control "
            "that must lose does not"
        )
    return missed


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table and what does not hold."""
    parser = parser_of(__doc__, WORKLOADS)
    parser.add_argument("--routers", nargs="+", type=int, default=[4, 16])
    options = options_of(parser, argv)
    if min(options.routers) < 2:
        parser.error("--routers must be 2 or more")
    bench = Bench(options.workloads, options.trace, options.size, 1)
    names = [*SYNCS, "hit"]
    print("| workload | routers |", " | ".join(names), "|")
    print("|---|--:|" + "--:|" * len(names))
    missed = []
    for workload in measured(options):
        for routers in options.routers:
            rows = [figures(bench, workload, routers, seed) for seed in range(1, options.seeds + 1)]
            columns = {name: [row[name] for row in rows] for name in names}
            print(f"| {workload} | {routers} |", " | ".join(map(span, columns.values())), "|", flush=True)
            missed += misses(workload, routers, columns)
    for line in missed:
        print(line)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
