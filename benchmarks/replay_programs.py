"""What programs are worth, by the replay: python -m benchmarks.replay_programs

Agents whose sessions together need 0.7 to 3.2 times the fleet's KV cache, on four workers of 320,000 tokens:
3 to 60 turns, each with 1,300 tokens more in and 420 out, behind 6,000 that all share, and log-normal pauses.
Each number of agents is played without programs, observed, and with `--program-admission on`, and compared
with the bars of the design. Means over the seeds; a turn's seconds have its pause and wait. Exit status 1:
a bar is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from vllm_router.replay import Fleet, PolicySpec, Programs, Trace, _engine
from vllm_router.replay.sessions import Turn, closed_loop

BLOCK = 256
WORKERS = 4
CACHE_TOKENS = 320_000
SHARED, MORE, RESPONSE = 6_000, 1_300, 420
TURNS = (3, 60)
SESSIONS_PER_AGENT = 10
# What the first and the last sessions do is left out.
BEGIN, END = 0.15, 0.65
MODES = ("off", "observe", "on")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A row of the table, and its bars: `on` over `off`; 0: none."""

    programs: int
    pause_s: float
    spread: float
    turns: float
    hits: float = 0.0
    seconds: float = 0.0
    p99: float = 0.0


SETTINGS = (
    Setting(24, 4, 1.2, turns=0.99),
    Setting(32, 4, 1.2, turns=1.9, hits=0.85, seconds=0.65, p99=1.1),
    Setting(48, 4, 1.2, turns=2.5, hits=0.85, seconds=0.65, p99=1.1),
    Setting(64, 4, 1.2, turns=2.3, hits=0.85, seconds=0.65, p99=1.1),
    Setting(96, 4, 1.2, turns=1.7, hits=0.65, seconds=0.65, p99=1.1),
    Setting(24, 20, 1.5, turns=0.99),
    Setting(48, 20, 1.5, turns=1.0, p99=1.2),
    Setting(96, 20, 1.5, turns=1.3, p99=1.2),
)


def agents_of(setting: Setting, seed: int, sessions_per_agent: int = SESSIONS_PER_AGENT) -> Trace:
    """The trace of these agents."""
    dice = np.random.default_rng([seed, 0xA6E7])
    front = np.arange(SHARED // BLOCK, dtype=np.uint64)
    next_id = len(front)
    sessions = []
    for number in range(setting.programs * sessions_per_agent):
        count = int(dice.integers(TURNS[0], TURNS[1] + 1))
        tokens = SHARED + count * (MORE + RESPONSE)
        blocks = tokens // BLOCK - len(front)
        stream = np.concatenate((front, np.arange(next_id, next_id + blocks, dtype=np.uint64)))
        next_id += blocks
        session = []
        for turn in range(count):
            prompt = SHARED + MORE + turn * (MORE + RESPONSE)
            full, after = prompt // BLOCK, (prompt + RESPONSE) // BLOCK
            pause = float(np.clip(dice.lognormal(np.log(setting.pause_s), setting.spread), 0.1, 600))
            session.append(
                Turn(
                    prompt,
                    RESPONSE,
                    stream[:full],
                    after=(turn - 1,) if turn else (),
                    pause_s=pause,
                    output_blocks=stream[full:after],
                    key=number + 1,
                )
            )
        sessions.append(session)
    return closed_loop("programs", BLOCK, sessions, setting.programs)


@dataclasses.dataclass(frozen=True)
class Figures:
    """Of one run, or means of several."""

    turns_per_minute: float
    hits: float
    seconds: float
    p99: float


def play(trace: Trace, mode: str, seed: int) -> Figures:
    """One run, without its begin and its end."""
    fleet = Fleet(workers=WORKERS, cache_tokens=CACHE_TOKENS)
    routing = fleet.routing() | PolicySpec("auto").as_core(trace.block_size, fleet.index_blocks(trace), seed)
    result: dict[str, Any] = _engine.simulate(
        trace.as_core(), routing | Programs(mode).as_core(), fleet.as_core(trace)
    )
    ends = np.asarray(result["arrival_s"]) + np.asarray(result["e2e_s"])
    order = np.sort(ends)
    begin_s, end_s = order[int(BEGIN * len(order))], order[int(END * len(order))]
    inside = (ends >= begin_s) & (ends < end_s)
    assert trace.pause_s is not None
    seconds = np.asarray(result["e2e_s"])[inside] + np.asarray(trace.pause_s)[inside]
    return Figures(
        turns_per_minute=60 * float(inside.sum()) / float(end_s - begin_s),
        hits=float(np.asarray(result["hit_tokens"])[inside].sum() / trace.input_tokens[inside].sum()),
        seconds=float(seconds.mean()),
        p99=float(np.quantile(seconds, 0.99)),
    )


def mean_of(runs: Sequence[Figures]) -> Figures:
    """Each figure's mean."""
    names = [field.name for field in dataclasses.fields(Figures)]
    return Figures(**{name: float(np.mean([getattr(run, name) for run in runs])) for name in names})


def missed(setting: Setting, off: Figures, on: Figures) -> list[str]:
    """The bars that are, with what was measured."""
    problems = []
    gain = on.turns_per_minute / off.turns_per_minute
    if gain < setting.turns:
        problems.append(f"turns {gain:.2f}x, and not {setting.turns:g}x")
    if on.hits < setting.hits:
        problems.append(f"hits {on.hits:.2f}, and not {setting.hits:g}")
    if setting.seconds and on.seconds > setting.seconds * off.seconds:
        problems.append(f"mean {on.seconds / off.seconds:.2f}x, and not {setting.seconds:g}x")
    if setting.p99 and on.p99 > setting.p99 * off.p99:
        problems.append(f"p99 {on.p99 / off.p99:.2f}x, and not {setting.p99:g}x")
    return problems


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    parser.add_argument("--sessions", type=int, default=SESSIONS_PER_AGENT, metavar="N", help="of each agent")
    parser.add_argument("--programs", type=int, nargs="+", metavar="N", help="only these numbers of agents")
    options = parser.parse_args(argv)
    head = "| programs; pause | turns/min off, observe, on | hits off, on | s per turn, mean; p99 | bars |"
    print(head, "|---|--:|--:|--:|---|", sep="\n")
    is_met = True
    for setting in SETTINGS:
        if options.programs and setting.programs not in options.programs:
            continue
        runs: dict[str, list[Figures]] = {mode: [] for mode in MODES}
        for seed in range(1, options.seeds + 1):
            trace = agents_of(setting, seed, options.sessions)
            for mode in MODES:
                runs[mode].append(play(trace, mode, seed))
        off, observe, on = (mean_of(runs[mode]) for mode in MODES)
        problems = missed(setting, off, on)
        is_met = is_met and not problems
        print(
            f"| {setting.programs}; {setting.pause_s:g} s, {setting.spread:g} "
            f"| {off.turns_per_minute:.0f}, {observe.turns_per_minute:.0f}, {on.turns_per_minute:.0f} "
            f"| {off.hits:.2f}, {on.hits:.2f} "
            f"| {off.seconds:.0f}, {on.seconds:.0f}; {off.p99:.0f}, {on.p99:.0f} "
            f"| {'; '.join(problems) or 'met'} |",
            flush=True,
        )
    return 0 if is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
