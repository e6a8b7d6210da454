"""`vllm-router replay`: which policy serves recorded traffic best.

    vllm-router replay trace.jsonl --policy all --workers 8
    vllm-router replay --workload chat --load 0.85 --seeds 3 --policy everything --html report.html
    vllm-router replay trace.jsonl.gz --policy cache_aware:cache_threshold=0.3|0.5 --recommend

Exit status: 0 when all was simulated, 2 for a mistake on the command line or in a file, 1 when a report could
not be written.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vllm_router import _engines
from vllm_router._version import __version__
from vllm_router.replay import runner
from vllm_router.replay.admission import Admission
from vllm_router.replay.charts import as_html, save_plot
from vllm_router.replay.fleet import (
    KINDS,
    KV_BYTES_PER_TOKEN,
    LINK_GB_PER_S,
    TRANSFER_MS,
    Cut,
    Event,
    Fleet,
    PeerSync,
    read_engine,
)
from vllm_router.replay.holdout import BASELINES, Holdout, sentence_of
from vllm_router.replay.policies import PolicySpec, parse_policies
from vllm_router.replay.programs import MODES, Programs
from vllm_router.replay.readers import FORMATS, read_trace
from vllm_router.replay.report import as_json, points_of, recommend, shares_table, table_of
from vllm_router.replay.sessions import AGENTS
from vllm_router.replay.shared import TENANT_USERS
from vllm_router.replay.trace import Trace, TraceError
from vllm_router.replay.users import DEMO_USERS, USERS
from vllm_router.replay.workloads import CLOSED_LOOPS, WORKLOADS, generate
from vllm_router.settings.command_line import CommandParser

# So many skipped lines are shown; the rest is counted.
SHOWN_PROBLEMS = 5

# A pipe has no width of its own.
PIPE_WIDTH = 160

DEFAULT_WORKERS = 8

# Without --load, --rate and --speed a recording is played as it was, a workload at this load.
WORKLOAD_LOAD = 0.85


def make_parser() -> CommandParser:
    """All flags."""
    parser = CommandParser(
        prog="vllm-router replay",
        usage="vllm-router replay TRACE [flags], or vllm-router replay --workload NAME [flags]",
        description="Replays traffic against a simulated fleet, once for each policy, and shows which "
        "policy serves it best. The policies are the router's own; an hour of traffic takes a "
        "second.",
        allow_abbrev=False,
    )

    def add(group: argparse._ArgumentGroup, name: str, *, help: str, **details: Any) -> None:  # noqa: A002
        spellings = dict.fromkeys((f"--{name}", f"--{name.replace('-', '_')}"))
        group.add_argument(*spellings, dest=name.replace("-", "_"), help=help.replace("%", "%%"), **details)

    traffic = parser.add_argument_group("Traffic")
    traffic.add_argument(
        "trace", nargs="?", metavar="TRACE", help="A file of recorded traffic; may be compressed (.gz, .zst)."
    )
    add(
        traffic,
        "workload",
        metavar="NAME",
        help=f"Generated traffic instead of a recording: {', '.join(WORKLOADS)}.",
    )
    add(
        traffic,
        "size",
        type=int,
        metavar="N",
        help="Number of requests of a workload; for chat, classes, agents, users and demo, of sessions. "
        "Default: the workload's own.",
    )
    add(
        traffic,
        "agents",
        type=int,
        metavar="N",
        help="Number of agents that work at once, each on one session after the other, for --workload agents "
        f"and for recorded sessions of agents. Default: {AGENTS}.",
    )
    add(
        traffic,
        "users",
        type=int,
        metavar="N",
        help="Number of users that chat at once, each with one chat after the other, for --workload users "
        f"and demo, and of users of each tenant for --workload tenants. Default: {USERS}, {DEMO_USERS} and "
        f"{TENANT_USERS}.",
    )
    add(
        traffic,
        "format",
        metavar="NAME",
        help=f"Format of the file: {', '.join(FORMATS)}. Default: recognised by the first line.",
    )
    add(
        traffic,
        "strict",
        action="store_true",
        help="Fail at an invalid line; otherwise it is skipped.",
    )
    add(traffic, "sort", action="store_true", help="Sort requests by arrival if the file is not sorted.")
    add(
        traffic,
        "spread",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="Spread requests that share a tick of a coarse clock. Default: if ticks are 0.5 s or more.",
    )
    add(traffic, "limit", type=int, metavar="N", help="Replay only the first N requests.")
    add(
        traffic,
        "load",
        nargs="+",
        type=float,
        metavar="X",
        help="Load as a share of the fleet's capacity, which is measured first, such as 0.85. Several "
        "values are a sweep.",
    )
    add(
        traffic,
        "rate",
        nargs="+",
        type=float,
        metavar="R",
        help="Load in requests per second, instead of --load. Several values are a sweep.",
    )
    add(
        traffic,
        "speed",
        type=float,
        default=1.0,
        metavar="X",
        help="Factor by which a recording is replayed faster, without --load and --rate; of agents and "
        "users, by which pauses are shorter. Default: 1; a workload without agents or users has --load 0.85.",
    )
    add(
        traffic,
        "poisson",
        action="store_true",
        help="Random arrivals at the same rate instead of recorded ones.",
    )
    add(
        traffic,
        "slo",
        type=float,
        metavar="S",
        help="The p90 time to first token, in seconds, that defines capacity. Default: 4 times that of an "
        "idle fleet.",
    )

    policies = parser.add_argument_group("Policies")
    add(
        policies,
        "policy",
        nargs="+",
        action="extend",
        metavar="SPEC",
        help="Policies by name, with options: consistent_hash:hash_load_factor=1.25. Several values, as in "
        "prefix_aware:virtual_nodes=50|150, are a sweep. all: the router's own; compare: other "
        "routers' formulas, in the replay only; everything: both. Default: all.",
    )
    add(
        policies,
        "goodput",
        action="store_true",
        help="Also find the highest rate of each policy within the SLO.",
    )
    add(
        policies,
        "holdout",
        type=float,
        metavar="X",
        help="Percentage of conversations that --holdout-policy routes instead, as the router's "
        "--holdout-percent; the estimate of what the policy changes follows the table.",
    )
    add(
        policies,
        "holdout-policy",
        metavar="NAME",
        help=f"The policy of these: {', '.join(BASELINES)}. Default: {BASELINES[0]}.",
    )
    add(
        policies,
        "seeds",
        type=int,
        default=1,
        metavar="N",
        help="Repeat each run with seeds 1 to N. Default: 1.",
    )
    add(
        policies,
        "jobs",
        type=int,
        metavar="N",
        help="Number of simulations at a time. Default: one per processor, up to 4.",
    )

    fleet = parser.add_argument_group("Fleet")
    add(
        fleet,
        "workers",
        nargs="+",
        type=int,
        metavar="N",
        help="Number of workers. Default: 8. Several values are a sweep.",
    )
    add(
        fleet,
        "prefill",
        nargs="+",
        type=int,
        metavar="N",
        help="Number of prefill workers, instead of --workers, for a fleet whose prompts are computed by "
        "some workers and fetched by others, those of --decode. Several values are a sweep.",
    )
    add(
        fleet,
        "decode",
        nargs="+",
        type=int,
        metavar="N",
        help="Number of decode workers, with --prefill. Several values are a sweep.",
    )
    add(
        fleet,
        "cache-tokens",
        nargs="+",
        type=int,
        metavar="N",
        help="Capacity of a worker's KV cache in tokens: num_gpu_blocks * block_size of the engine; the "
        "minimum is the longest request, and 0 means no cache. Several values are a sweep.",
    )
    add(
        fleet,
        "cache-share",
        nargs="+",
        type=float,
        metavar="X",
        help="Capacity of all caches together without --cache-tokens, in working sets of the trace; the "
        "minimum is 160,000 tokens each. Default: 1.",
    )
    add(
        fleet,
        "prefill-cache-tokens",
        type=int,
        metavar="N",
        help="Capacity of a prefill worker's KV cache in tokens. Default: as a decode worker's with "
        "--cache-tokens, or with --cache-share its part of the caches of prefill workers.",
    )
    add(
        fleet,
        "kv-bytes-per-token",
        type=float,
        metavar="N",
        help=f"Size of the KV cache of one token, which decode workers fetch. Default: {KV_BYTES_PER_TOKEN}.",
    )
    add(
        fleet,
        "link-gb-per-s",
        type=float,
        metavar="X",
        help="Rate at which a worker sends or receives KV blocks, in 10^9 bytes per second. Default: "
        f"{LINK_GB_PER_S}.",
    )
    add(
        fleet,
        "transfer-ms",
        type=float,
        metavar="X",
        help="Latency of a transfer of KV blocks in milliseconds, beside the time that its bytes take. "
        f"Default: {TRANSFER_MS:g}.",
    )
    add(fleet, "engine", metavar="NAME", help="A preset of the engine, or a YAML file of its coefficients.")
    add(
        fleet,
        "max-running",
        type=int,
        metavar="N",
        help="Maximum number of requests that a worker computes at once. Default: 256.",
    )
    add(
        fleet,
        "step-tokens",
        type=int,
        metavar="N",
        help="Maximum number of tokens that a step computes. Default: 8192.",
    )
    add(
        fleet,
        "prompts-first",
        action="store_true",
        help="Let a step compute either prompts or next tokens, prompts first, as an engine without chunked "
        "prefill.",
    )
    add(
        fleet,
        "whole-responses",
        action="store_true",
        help="Let responses come whole instead of streaming, so that the router sees no first token.",
    )
    add(
        fleet,
        "speeds",
        nargs="+",
        type=float,
        metavar="X",
        help="Relative speeds, one per worker. Default: all 1.",
    )
    add(
        fleet,
        "weights",
        nargs="+",
        type=float,
        metavar="X",
        help="Weights of the workers in the router, one per worker. Default: all 1.",
    )
    for kind, what in zip(
        KINDS[:-1],
        (
            "Worker W crashes at second T; its requests without a token are retried.",
            "Worker W joins at second T.",
            "Worker W drains from second T on: it gets no new requests.",
            "Worker W loses its cache at second T.",
        ),
        strict=True,
    ):
        add(fleet, kind, nargs="+", action="extend", metavar="T:W", help=what)
    add(
        fleet,
        "change-speed",
        nargs="+",
        action="extend",
        metavar="T:W:X",
        help="Worker W has relative speed X from second T on.",
    )
    add(
        fleet,
        "wipe-every",
        type=float,
        default=0.0,
        metavar="S",
        help="Wipe the cache of the next worker every S seconds.",
    )
    add(
        fleet,
        "routers",
        nargs="+",
        type=int,
        default=[1],
        metavar="N",
        help="Number of router replicas, which know nothing of each other without --peer-sync. Default: 1. "
        "Several values are a sweep.",
    )
    add(
        fleet,
        "peer-sync",
        metavar="S[:STRIDE[:LOSS]]",
        help="Let replicas tell each other of decisions and loads every S seconds, such as 0.25. STRIDE is "
        "the length in tokens to which others know a decision (256), LOSS the share of messages that get "
        "lost (0).",
    )
    add(
        fleet,
        "isolate",
        nargs="+",
        action="extend",
        metavar="T:R[:S]",
        help="Cut replica R off from second T on, for S seconds; with --peer-sync.",
    )
    add(
        fleet,
        "outage",
        nargs="+",
        action="extend",
        metavar="T[:S]",
        help="Cut all replicas off from second T on, for S seconds; with --peer-sync.",
    )
    add(fleet, "by-session", action="store_true", help="Send all requests of a session to one replica.")

    add(
        fleet,
        "admission-config",
        metavar="FILE",
        help="Priority classes of the router, a file as of its own flag: requests wait in its queues. "
        "mooncake and bailian may say priority_class and tenant of each; the workloads classes and tenants "
        "have them.",
    )
    add(
        fleet,
        "program-admission",
        choices=MODES,
        default="off",
        help="Programs of the router, as by its own flag: each session is one, and waits while the KV caches "
        "have no room for it. Their settings are in a file of --admission-config without classes.",
    )

    output = parser.add_argument_group("Report")
    add(
        output,
        "json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="Write JSON to the file, or without a file to standard output instead of the table.",
    )
    add(output, "html", metavar="FILE", help="Write a self-contained HTML page with charts.")
    add(output, "plot", metavar="FILE", help="Write the charts as an image; needs matplotlib.")
    add(output, "recommend", action="store_true", help="Print the recommended flags, and why.")
    add(output, "quiet", action="store_true", help="Print no progress and no notes; only the table.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = make_parser()
    options = parser.parse_command(argv)
    notes = Console(stderr=True, quiet=options.quiet, soft_wrap=True, highlight=False)
    try:
        specs = parse_policies(options.policy or ["all"])
        fleets = _fleets(options)
        _check_outputs(options)
        begin = time.monotonic()
        trace = _trace(options, notes)
        rows = _run(options, trace, specs, fleets, notes)
    except (TraceError, ValueError) as error:
        parser.error(" ".join(str(error).split()))
    seconds = time.monotonic() - begin
    try:
        return _report(options, rows, specs, seconds)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read the table has gone
        return 0
    except OSError as error:
        name = error.filename or "standard output"
        print(f"vllm-router replay: error: {name} cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def _fleets(options: argparse.Namespace) -> list[Fleet]:
    if options.cache_tokens and options.cache_share:
        raise TraceError(
            "--cache-tokens and --cache-share are both given, and both set the size of caches; keep one of "
            "them"
        )
    settings: dict[str, Any] = {}
    if options.engine is not None:
        given = options.engine
        settings = read_engine(given) if _engines.is_file(given) else {"engine": given}
    cache_tokens = options.cache_tokens or [settings.pop("cache_tokens", None)]
    for name in ("max_running", "step_tokens"):
        if getattr(options, name) is not None:
            settings[name] = getattr(options, name)
    cuts = [Cut.parse(flag, text) for flag in ("isolate", "outage") for text in getattr(options, flag) or ()]
    if cuts and options.peer_sync is None:
        raise TraceError(
            "--isolate and --outage cut replicas off from --peer-sync, which is not given; add it"
        )
    peer_sync = PeerSync.parse(options.peer_sync, cuts) if options.peer_sync is not None else None
    given_events = {kind: getattr(options, kind) for kind in KINDS[:-1]} | {"speed": options.change_speed}
    events = [Event.parse(kind, text) for kind in KINDS for text in given_events[kind] or ()]
    return [
        Fleet(
            **size,
            cache_tokens=tokens,
            cache_share=share,
            speeds=options.speeds or (),
            weights=options.weights or (),
            events=events,
            wipe_every_s=options.wipe_every,
            routers=routers,
            peer_sync=peer_sync if routers > 1 else None,
            by_session=options.by_session,
            prompts_first=options.prompts_first,
            whole_responses=options.whole_responses,
            **settings,
        )
        for size, tokens, share, routers in itertools.product(
            _sizes(options, settings), cache_tokens, options.cache_share or [1.0], options.routers
        )
    ]


def _sizes(options: argparse.Namespace, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The numbers of workers; adds to `settings` what only two stages have."""
    of_stages = ("prefill_cache_tokens", "kv_bytes_per_token", "link_gb_per_s", "transfer_ms")
    given = [name for name in of_stages if getattr(options, name) is not None]
    if (options.prefill is None) != (options.decode is None):
        raise TraceError("of --prefill and --decode one is given; a fleet with stages needs both")
    if options.prefill is None:
        if given:
            raise TraceError(
                f"--{given[0].replace('_', '-')} belongs to a fleet with stages; set --prefill and --decode"
            )
        return [{"workers": workers} for workers in options.workers or [DEFAULT_WORKERS]]
    if options.workers is not None:
        raise TraceError(
            "--workers is given beside --prefill and --decode, which say how many workers there are; leave "
            "it out"
        )
    for name in ("prefill", "decode"):
        if min(getattr(options, name)) < 1:
            raise TraceError(f"{name} is {min(getattr(options, name))}; it must be 1 or more")
    settings |= {name: getattr(options, name) for name in given}
    return [
        {"prefill": prefill, "decode": decode}
        for prefill, decode in itertools.product(options.prefill, options.decode)
    ]


def _check_outputs(options: argparse.Namespace) -> None:
    """Before an hour of work, not after it."""
    for name in ("json", "html", "plot"):
        given = getattr(options, name)
        if given not in (None, "-") and not Path(given).absolute().parent.is_dir():
            raise TraceError(
                f"--{name} {given}: the directory {Path(given).parent} does not exist; create it first"
            )


def _trace(options: argparse.Namespace, notes: Console) -> Trace | Callable[[int], Trace]:
    if (options.trace is None) == (options.workload is None):
        raise TraceError("name a file of recorded traffic, or a --workload" if options.trace is None else
                         "a file and a --workload are both given; keep one of them")  # fmt: skip
    if options.workload is not None:
        is_open = options.workload not in CLOSED_LOOPS
        if is_open and options.load is None and options.rate is None and options.speed == 1:
            options.load = [WORKLOAD_LOAD]
        who = (options.agents, options.users)
        generate(options.workload, 1, 1, *who)  # a wrong name is said now
        return lambda seed: _limited(generate(options.workload, seed, options.size, *who), options.limit)
    if options.size is not None:
        raise TraceError("--size belongs to --workload; for a file use --limit")
    if options.users is not None:
        raise TraceError("--users belongs to --workload users, demo and tenants; leave it out")
    problems: list[str] = []

    def read(seed: int) -> Trace:
        return read_trace(
            options.trace,
            format=options.format,
            strict=options.strict,
            sort=options.sort,
            spread=options.spread,
            seed=seed,
            limit=options.limit,
            agents=options.agents,
            on_problem=problems.append,
        )

    first = read(1)
    for sentence in problems[:SHOWN_PROBLEMS]:
        notes.print(f"vllm-router replay: skipped: {sentence}", markup=False)
    if len(problems) > SHOWN_PROBLEMS:
        notes.print(
            f"vllm-router replay: skipped {len(problems) - SHOWN_PROBLEMS:,} more lines", markup=False
        )
    # Only spread times differ from seed to seed.
    return lambda seed: first if seed == 1 else read(seed)


def _limited(trace: Trace, limit: int | None) -> Trace:
    return trace if limit is None else trace.head(limit)


@contextlib.contextmanager
def _bar(notes: Console) -> Iterator[Callable[[runner.Progress], None]]:
    columns = (
        TextColumn("{task.description}", table_column=None),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bar:
        task = bar.add_task("replaying", total=None, speed="")
        begin = time.monotonic()

        def update(progress: runner.Progress) -> None:
            rate = progress.requests / max(1e-9, time.monotonic() - begin)
            bar.update(
                task,
                total=progress.total,
                completed=progress.done,
                description=progress.doing,
                speed=f"{rate:,.0f} requests/s",
            )

        yield update


def _run(
    options: argparse.Namespace,
    trace: Trace | Callable[[int], Trace],
    specs: list[PolicySpec],
    fleets: list[Fleet],
    notes: Console,
) -> list[runner.Row]:
    holdout = _holdout(options)
    admission, programs = _admission(options)
    with _bar(notes) as update:
        return runner.run(
            trace,
            specs,
            fleets,
            load=options.load,
            rate=options.rate,
            speed=options.speed,
            poisson=options.poisson,
            seeds=options.seeds,
            slo_s=options.slo,
            goodput=options.goodput,
            holdout=holdout,
            admission=admission,
            programs=programs,
            jobs=options.jobs,
            on_progress=update,
        )


def _admission(options: argparse.Namespace) -> tuple[Admission | None, Programs | None]:
    """What waits at the router."""
    path, mode = options.admission_config, options.program_admission
    members = "" if path is None else Admission.members_of_programs(path)
    programs = None if mode == "off" else Programs(mode, members)
    if path is None:
        return None, programs
    admission = Admission.read(path)
    return None if programs is not None and not admission.lines else admission, programs


def _holdout(options: argparse.Namespace) -> Holdout | None:
    if options.holdout is not None:
        return Holdout(options.holdout, options.holdout_policy or BASELINES[0])
    if options.holdout_policy is not None:
        raise TraceError("--holdout-policy belongs to --holdout; set the percentage, such as --holdout 5")
    return None


def _report(
    options: argparse.Namespace, rows: list[runner.Row], specs: list[PolicySpec], seconds: float
) -> int:
    advice = recommend(rows, specs)
    about = {"vllm-router": __version__, "command": " ".join(["vllm-router replay", *_words(options)])}
    out = Console(soft_wrap=True, highlight=False)
    if not out.is_terminal:
        out.width = PIPE_WIDTH
    if options.json == "-":
        print(as_json(rows, about | {"recommended": dataclasses.asdict(advice)["flags"]}))
    else:
        for point in points_of(rows):
            out.print(table_of(point, out.width))
            shares = shares_table(point)
            if shares is not None:
                out.print(shares)
        for sentence in (sentence_of(row) for row in rows if "holdout_conversations" in row):
            out.print(sentence, markup=False)
    if options.json not in (None, "-"):
        Path(options.json).write_text(
            as_json(rows, about | {"recommended": advice.flags}) + "\n", encoding="utf-8"
        )
    if options.html is not None:
        Path(options.html).write_text(as_html(rows, advice, about), encoding="utf-8")
    if options.plot is not None:
        try:
            save_plot(rows, options.plot)
        except TraceError as error:
            print(f"vllm-router replay: error: {error}", file=sys.stderr)
            return 1
    if options.json != "-":
        if options.recommend:
            out.print(f"\n{advice.flags}" if advice.flags else "", markup=False)
            for sentence in advice.why:
                out.print(f"  {sentence}", markup=False)
        if not options.quiet:
            simulated = sum(row["requests"] for row in rows)
            out.print(f"{simulated:,} requests of {len(rows)} runs in {seconds:.1f} s.", style="dim")
    return 0


def _words(options: argparse.Namespace) -> list[str]:
    """The command line again, as far as it differs from the defaults."""
    defaults = vars(make_parser().parse_args([]))
    words = [options.trace] if options.trace else []
    for name, value in vars(options).items():
        if name == "trace" or value == defaults[name]:
            continue
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else "--no-" + flag[2:])
        else:
            words += [flag, *map(str, value if isinstance(value, list) else [value])]
    return words


if __name__ == "__main__":
    sys.exit(main())
