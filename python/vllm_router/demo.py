"""`vllm-router demo`: the same chats over three simulated workers, once per policy, live.

    vllm-router demo                                           three policies compared, about 15 s
    vllm-router demo --policy round_robin least_load consistent_hash
    vllm-router demo --kv-events                               claims of cached tokens beside reported ones
    vllm-router demo --keep                                    leaves the last fleet up and prints a curl line
    vllm-router demo --pd                                      prefill and decode workers, request by request

Each policy gets a fresh fleet: real HTTP from users to router to workers, all in this process and on
loopback. A worker's steps take 0.4 ms for each prompt token in them that it has not cached, so the time to
first token tells whether the router sent a chat's next turn to where its history is.
Nothing is left running afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.client
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vllm_router import _core, _pair_demo
from vllm_router.errors import RouterError
from vllm_router.router import Router
from vllm_router.server import Server
from vllm_router.settings.command_line import CommandParser
from vllm_router.settings.policies import BLOCK_POLICIES
from vllm_router.testing import SimulatedWorker

if TYPE_CHECKING:
    from vllm_router.option_types import PolicyName

DEFAULT_POLICIES = ("round_robin", "consistent_hash", "cache_aware", "auto")

# One worker's cache holds its share of the chats, though not all of them; so does a real fleet's.
FLEET: dict[str, Any] = {"step_ms": 4.0, "prefill_us_per_token": 400.0, "cache_blocks": 640}
BLOCK_TOKENS = 16
ANSWER_TOKENS = 24
QUESTION_WORDS = 50
THINK_SECONDS = (0.15, 0.45)

_NAMES = "Ada Ben Cleo Dan Eve Finn Gus Hana Ida Jon Kim Lou Mia Ned Ola Pia Quin Rob Sue Tom Uma Vic"
_WORDS = (
    "about after again because before between could every first found great house large learn light "
    "little might never number other people place point right small sound spell still study their there "
    "these thing think three under water where which while world would write"
)


def name_of(user: int) -> str:
    """Ada, Ben, … and, when there are no more names, Ada-2, Ben-2, …."""
    names = _NAMES.split()
    again, index = divmod(user, len(names))
    return names[index] + (f"-{again + 1}" if again else "")


@dataclasses.dataclass(frozen=True)
class Turn:
    """What a user saw of one answer."""

    worker: str
    first_token_ms: float
    prompt_tokens: int
    cached_tokens: int
    claimed_tokens: int | None
    """What the router believed the worker had cached; None where its policy does not match blocks."""
    moved: bool = False
    """The chat's turn before was at another worker."""


@dataclasses.dataclass
class Tally:
    """Everything that the users saw under one policy. Written by their threads, read by the screen's."""

    policy: str
    planned: int
    turns: list[Turn] = dataclasses.field(default_factory=list)
    errors: list[str] = dataclasses.field(default_factory=list)

    def of(self, worker: str) -> list[Turn]:
        """The turns that this worker answered."""
        return [turn for turn in list(self.turns) if turn.worker == worker]


def computed(turns: Sequence[Turn]) -> int:
    """Prompt tokens that came from no cache."""
    return sum(turn.prompt_tokens - turn.cached_tokens for turn in turns)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values do not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else 0.0


def cached_share(turns: Sequence[Turn]) -> float:
    """Share of the prompt tokens that came from a cache."""
    return sum(turn.cached_tokens for turn in turns) / max(1, sum(turn.prompt_tokens for turn in turns))


class User(threading.Thread):
    """One person with one chat: asks, reads the streamed answer, thinks, asks on."""

    def __init__(self, number: int, turns: int, port: int, tally: Tally, halt: threading.Event, seed: int):
        super().__init__(daemon=True, name=name_of(number))
        self._turns = turns
        self._port = port
        self._tally = tally
        self._halt = halt
        self._dice = random.Random(f"{seed}-{number}")

    def run(self) -> None:
        """Hold the whole chat; trouble ends it and is tallied."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        with contextlib.closing(connection):
            try:
                self._chat(connection)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                if not self._halt.is_set():
                    self._tally.errors.append(f"{self.name}: {type(error).__name__}: {error}")

    def _chat(self, connection: http.client.HTTPConnection) -> None:
        messages = [{"role": "system", "content": f"You are the assistant of {self.name}. Be kind. " * 8}]
        # Nobody sits down at the same moment.
        self._halt.wait(self._dice.uniform(0, THINK_SECONDS[1]))
        before = None
        for _ in range(self._turns):
            if self._halt.is_set():
                return
            question = " ".join(self._dice.choices(_WORDS.split(), k=QUESTION_WORDS))
            messages.append({"role": "user", "content": question})
            answer, turn = self._ask(connection, messages)
            messages.append({"role": "assistant", "content": answer})
            self._tally.turns.append(dataclasses.replace(turn, moved=before not in (None, turn.worker)))
            before = turn.worker
            self._halt.wait(self._dice.uniform(*THINK_SECONDS))

    def _ask(
        self, connection: http.client.HTTPConnection, messages: list[dict[str, str]]
    ) -> tuple[str, Turn]:
        body = {
            "messages": messages,
            "max_tokens": ANSWER_TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"Content-Type": "application/json", "X-Session-ID": self.name}
        begin = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"HTTP {response.status}: {response.read().decode(errors='replace')}")
        text, first_token, worker = "", 0.0, ""
        usage: dict[str, Any] = {}
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event: dict[str, Any] = json.loads(line[6:])
            worker = event.get("system_fingerprint", worker)
            usage = event.get("usage", usage)
            for choice in event["choices"]:
                content = choice["delta"].get("content")
                if content and not text:
                    first_token = time.perf_counter() - begin
                text += content or ""
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        claimed = claimed_tokens(response.getheader("x-vllm-router-cache-status"))
        return text, Turn(worker, first_token * 1e3, usage["prompt_tokens"], cached, claimed)


def claimed_tokens(cache_status: str | None) -> int | None:
    """Of the header's "5/7 blocks", the five in tokens; None of what is not in blocks."""
    matched, _, rest = (cache_status or "").partition("/")
    return int(matched) * BLOCK_TOKENS if rest.endswith(" blocks") else None


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Workers and the router before them."""

    workers: list[SimulatedWorker]
    server: Server


@contextlib.contextmanager
def fleet(policy: str, workers: int, port: int, *, kv_events: bool = False) -> Iterator[Fleet]:
    """A fresh fleet, gone at the end of the block. With events, once they are heard."""
    publishing = {"kv_events_port": 0, "kv_events_replay_port": 0} if kv_events else {}
    with contextlib.ExitStack() as stack:
        simulated = [stack.enter_context(SimulatedWorker(**FLEET, **publishing)) for _ in range(workers)]
        router = Router(cast("PolicyName", policy), [worker.url for worker in simulated])
        server = router.serve(port=port, threads=1, decision_headers=kv_events)
        try:
            if kv_events and router.policy in BLOCK_POLICIES:
                wait_for_events(server, workers)
            yield Fleet(simulated, server)
        finally:
            server.stop(grace_secs=1)  # its users have been told to stop


def wait_for_events(server: Server, workers: int) -> None:
    """Returns once the router hears all workers.

    Raises:
        RouterError: it does not within ten seconds.
    """
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)) as client:
            client.request("GET", "/admin/kv-events")
            sources = json.load(client.getresponse())["sources"]
        if [source["trust"] for source in sources] == ["exact"] * workers:
            return
        time.sleep(0.05)
    raise RouterError("the router does not hear the KV events of all simulated workers")


def bar(share: float, width: int = 8) -> str:
    """A share as a bar."""
    full = round(share * width)
    return "█" * full + "·" * (width - full)


def _table(title: str, first: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cached(turns: Sequence[Turn]) -> str:
    return f"{bar(cached_share(turns))} {cached_share(turns):4.0%}"


def _times(turns: Sequence[Turn]) -> tuple[str, str]:
    times = [turn.first_token_ms for turn in turns]
    return f"{percentile(times, 0.5):.0f} ms", f"{percentile(times, 0.9):.0f} ms"


def worker_table(tally: Tally, workers: Sequence[SimulatedWorker]) -> Table:
    """Who served what, now."""
    table = _table(
        f"{tally.policy}: {len(tally.turns)} of {tally.planned} responses",
        "worker",
        ("responses", "in flight", "prompt cached", "TTFT p50", "p90"),
    )
    for worker in workers:
        turns = tally.of(f"sim-{worker.port}")
        stats = worker.stats()
        in_flight = stats["running"] + stats["waiting"]
        name = worker.url.removeprefix("http://")
        table.add_row(name, str(len(turns)), str(in_flight), _cached(turns), *_times(turns))
    return table


def claims(tally: Tally) -> str:
    """How many of the router's claims were right, and by how much they differ in sum; empty without any."""
    claimed = [turn for turn in tally.turns if turn.claimed_tokens is not None]
    if not claimed:
        return ""
    right = sum(turn.claimed_tokens == turn.cached_tokens for turn in claimed)
    differ = sum((turn.claimed_tokens or 0) - turn.cached_tokens for turn in claimed)
    share = differ / sum(turn.prompt_tokens for turn in claimed)
    return (
        f"{tally.policy}: what the router claimed to be cached was right for {right} of {len(claimed)} "
        f"responses; in sum it differs by {share:+.1%} of the prompt tokens."
    )


def comparison(tallies: Sequence[Tally]) -> Table:
    """One row per policy."""
    table = _table(
        "The same chats, policy by policy",
        "policy",
        ("per worker", "prompt cached", "computed", "TTFT p50", "p90"),
    )
    for tally in tallies:
        served = sorted(len(tally.of(worker)) for worker in {turn.worker for turn in tally.turns})
        spread = f"{served[0]}-{served[-1]}" if served else "-"
        table.add_row(
            tally.policy, spread, _cached(tally.turns), f"{computed(tally.turns):,}", *_times(tally.turns)
        )
    return table


def verdict(tallies: Sequence[Tally]) -> str:
    """What the comparison says, and why."""
    ranked = sorted(tallies, key=lambda tally: percentile([t.first_token_ms for t in tally.turns], 0.5))
    best, worst = ranked[0], ranked[-1]
    fast, slow = (percentile([t.first_token_ms for t in tally.turns], 0.5) for tally in (best, worst))
    result = (
        f"The median time to first token was {fast:.0f} ms with {best.policy} and {slow:.0f} ms with "
        f"{worst.policy}: {slow / max(fast, 0.1):.1f} times as long."
    )
    left = [sum(turn.moved for turn in tally.turns) for tally in (best, worst)]
    if best is worst:
        return result
    return (
        f"{result} Workers computed {computed(best.turns):,} and {computed(worst.turns):,} prompt tokens: "
        f"{left[0]} and {left[1]} turns went to another worker than the one that had their chat in its cache."
    )


def run_policy(
    tally: Tally, running: Fleet, arguments: argparse.Namespace, console: Console, stop: list[int]
) -> None:
    """Let all users chat to the end, or to the deadline, and show it."""
    deadline = time.monotonic() + arguments.seconds
    halt = threading.Event()
    users = [
        User(number, arguments.turns, running.server.port, tally, halt, arguments.seed)
        for number in range(arguments.users)
    ]
    with contextlib.ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False))
        for user in users:
            user.start()
        while any(user.is_alive() for user in users) and not halt.is_set():
            time.sleep(0.1)
            if time.monotonic() > deadline:
                tally.errors.append(f"chats unfinished after {arguments.seconds:g} s; raise --seconds")
                halt.set()
            if stop:
                halt.set()
            if live is not None:
                live.update(worker_table(tally, running.workers), refresh=True)
        for user in users:
            user.join(2)  # the answer it is reading is a short one
        if live is not None:
            live.update(worker_table(tally, running.workers), refresh=True)
        else:
            console.print(worker_table(tally, running.workers))


def keep(running: Fleet, policy: str, console: Console, stop: list[int]) -> None:
    """Leave the fleet up until somebody ends it."""
    body = '{"messages": [{"role": "user", "content": "Hello"}], "stream": true}'
    console.print(Text(f"{policy} stays up on {running.server.url} until Ctrl-C. For example:"))
    # Printed as it is, in one line, so that it can be copied.
    print(
        f"\n  curl -N {running.server.url}/v1/chat/completions -H 'Content-Type: application/json' "
        f"-H 'X-Session-ID: me' -d '{body}'\n",
        flush=True,
    )
    while not stop:
        time.sleep(0.2)


def make_parser() -> CommandParser:
    """The flags of the command."""
    parser = CommandParser(
        prog="vllm-router demo",
        description="Sends the same multi-turn chats through the router over simulated workers, once per "
        "policy, and compares what the users saw.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--policy",
        nargs="+",
        metavar="NAME",
        default=list(DEFAULT_POLICIES),
        help=f"Policies to compare, in this order. Default: {' '.join(DEFAULT_POLICIES)}.",
    )
    parser.add_argument(
        "--workers", type=_count, default=3, metavar="N", help="Number of workers. Default: 3."
    )
    parser.add_argument("--users", type=_count, default=12, metavar="N", help="Number of users. Default: 12.")
    parser.add_argument(
        "--turns", type=_count, default=8, metavar="N", help="Number of turns per user. Default: 8."
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=25,
        metavar="S",
        help="Time limit of one policy in seconds. Default: 25.",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="Seed of the users' words. Default: 1."
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="Port of the router. Default: any free port."
    )
    parser.add_argument(
        "--kv-events",
        action="store_true",
        help="Let the workers publish KV events, and compare what the router claims of their caches with the "
        "cached tokens that they report.",
    )
    parser.add_argument(
        "--keep", action="store_true", help="Keep the last policy's fleet running and print a curl command."
    )
    parser.add_argument(
        "--pd",
        action="store_true",
        help="Show how prefill and decode workers serve a few requests together. Of the other flags only "
        "--port counts.",
    )
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 256:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 256")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0, or 1 when a request failed."""
    parser = make_parser()
    arguments = parser.parse_command(argv)
    policies = [name for word in arguments.policy for name in word.split(",") if name]
    console = Console()
    stop: list[int] = []  # not an Event: its lock may be held by the very code that the signal interrupts
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: stop.append(number)) for number in signals]
    tallies: list[Tally] = []
    _core.configure_log("error", "text", "")
    try:
        if arguments.pd:
            return _pair_demo.run(arguments.port, console, stop)
        for name in policies:
            Router(policy=name)  # a mistake in the last name shall not come after the first one's minute
        console.print(
            f"{arguments.users} users with {arguments.turns} turns each, {arguments.workers} simulated "
            f"workers; each prompt token that is not cached costs {FLEET['prefill_us_per_token'] / 1e3} ms."
        )
        for name in policies:
            with fleet(name, arguments.workers, arguments.port, kv_events=arguments.kv_events) as running:
                tally = Tally(name, arguments.users * arguments.turns)
                tallies.append(tally)
                run_policy(tally, running, arguments, console, stop)
                if name == policies[-1] and not stop:
                    report(tallies, console)
                    if arguments.keep:
                        keep(running, name, console, stop)
            if stop:
                break
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    except (OSError, RouterError) as error:
        print(f"vllm-router demo: {error}", file=sys.stderr)
        return 1
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
    return 1 if any(tally.errors for tally in tallies) else 0


def report(tallies: Sequence[Tally], console: Console) -> None:
    """The comparison, the claims if there were any, and whatever went wrong."""
    console.print(Group(comparison(tallies), Text(verdict(tallies))) if len(tallies) > 1 else "")
    for sentence in filter(None, map(claims, tallies)):
        console.print(Text(sentence))
    for tally in tallies:
        for error in tally.errors[:5]:
            console.print(Text(f"{tally.policy}: {error}"))


if __name__ == "__main__":
    sys.exit(main())
