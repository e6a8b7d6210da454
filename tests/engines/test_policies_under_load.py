"""Loads on two engines under each policy: tokens found in caches, time of the whole load and to first tokens.

Loads are closed loops, so they fit machines of any speed, and the policies take turns in every round. Times
are printed and not compared: two engines, the router and the clients share what CPUs there are.
"""

import http.client
import json
import statistics
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.engines.processes import BLOCK, MODEL, Router
from tests.engines.test_cached_tokens import words
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]

POLICIES = {
    "auto": ("--block-size", str(BLOCK)),
    "cache_aware": (),
    "least_load": (),
    "consistent_hash": (),
}
ROUNDS = 7
WORSE = 1.1  # how far auto may be from the best policy before the table marks it

Message = dict[str, str]


@dataclass
class Answer:
    """One streamed response, in seconds since its request was sent."""

    worker: str
    first_token: float
    prompt: int  # tokens
    cached: int  # of them, as the engine says


def ask(base: str, messages: list[Message], user: str, tokens: int) -> tuple[Answer, str]:
    """A chat completion as a stream, on a connection of its own; and the text of the answer."""
    url = urllib.parse.urlsplit(base)
    body = {
        "model": MODEL,
        "messages": messages,
        "user": user,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=300)
    try:
        begun = time.monotonic()
        fields = {"content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), fields)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        first, text, usage = None, "", None
        for event in events(response):
            if event["choices"]:
                text += event["choices"][0]["delta"].get("content") or ""
                # The role comes before the prompt was computed.
                if first is None and "content" in event["choices"][0]["delta"] and text:
                    first = time.monotonic() - begun
            usage = event.get("usage") or usage
        assert usage is not None
        details = usage["prompt_tokens_details"] or {}
        worker = response.getheader("x-vllm-router-worker") or ""
        whole = time.monotonic() - begun  # of an answer whose tokens make no text
        return Answer(
            worker, whole if first is None else first, usage["prompt_tokens"], details.get("cached_tokens", 0)
        ), text
    finally:
        connection.close()


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])
    assert line, "the stream has no last line"


@dataclass
class Run:
    """A load that was sent once."""

    answers: list[Answer] = field(default_factory=list)
    makespan: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, answer: Answer) -> None:
        with self._lock:
            self.answers.append(answer)

    def cached(self) -> float:
        return sum(a.cached for a in self.answers) / sum(a.prompt for a in self.answers)

    def shares(self) -> list[int]:
        """Requests of each engine, the greatest number first; an engine that got none counts as 0."""
        counts = sorted(Counter(a.worker for a in self.answers).values(), reverse=True)
        return [*counts, 0][:2]


Job = Callable[[Run], None]


def chat(base: str, name: str, turns: int, system: int, length: int, tokens: int) -> Job:
    """A conversation: each turn is sent when the one before is answered."""

    def talk(run: Run) -> None:
        messages = [{"role": "system", "content": words(system, name.split("/")[0])}] if system else []
        for turn in range(turns):
            messages.append({"role": "user", "content": words(length, name, turn)})
            answer, text = ask(base, messages, name, tokens)
            run.add(answer)
            messages.append({"role": "assistant", "content": text})

    return talk


def multi_turn(base: str) -> list[Job]:
    """Twelve users of three applications, five turns each, all at once."""
    return [chat(base, f"app{user % 3}/{user}", 5, 400, 60, 24) for user in range(12)]


def burst(base: str) -> list[Job]:
    """48 equal short chats at once."""

    def hello(run: Run) -> None:
        run.add(ask(base, [{"role": "user", "content": words(12, "hello")}], "somebody", 24)[0])

    return [hello] * 48


def mixed(base: str) -> list[Job]:
    """Chats, questions about shared documents, and long prompts that share nothing, sixteen at a time."""
    chats = [chat(base, f"app{user % 2}/{user}", 3, 300, 60, 24) for user in range(8)]
    questions = [chat(base, f"document{number % 3}/{number}", 1, 900, 30, 16) for number in range(18)]
    alone = [chat(base, f"alone{number}", 1, 0, 900, 16) for number in range(8)]
    return [
        job
        for jobs in zip(*[iter(chats)] * 4, *[iter(questions)] * 9, *[iter(alone)] * 4, strict=True)
        for job in jobs
    ]


LOADS: dict[str, tuple[Callable[[str], list[Job]], int]] = {  # and how many of its jobs run at once
    "multi-turn": (multi_turn, 12),
    "burst": (burst, 48),
    "mixed": (mixed, 16),
}


def send(router: Router, load: str) -> Run:
    jobs, threads = LOADS[load][0](router.url), LOADS[load][1]
    run = Run()
    begun = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(job, run) for job in jobs]:
            future.result()
    run.makespan = time.monotonic() - begun
    return run


@pytest.fixture(scope="module")
def runs(fleet) -> dict[tuple[str, str], list[Run]]:
    """Of each load and policy some runs, each with empty caches and a router that knows nothing."""
    made: dict[tuple[str, str], list[Run]] = {}
    order = list(POLICIES)
    for _ in range(ROUNDS):
        order = order[1:] + order[:1]  # nobody is always the first
        for load in LOADS:
            for policy in order:
                flags = POLICIES[policy]
                with fleet.router(policy, *flags) as router:
                    for engine in fleet.engines:
                        engine.forget_prefixes()
                    made.setdefault((load, policy), []).append(send(router, load))
                    eventually(lambda router=router: router.load() == 0)
    return made


def median(runs: list[Run], figure: Callable[[Run], float]) -> float:
    return statistics.median(figure(run) for run in runs)


def ttft(runs: list[Run], percent: int) -> float:
    """A percentile over the requests of all rounds."""
    times = [answer.first_token for run in runs for answer in run.answers]
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


FIGURES: dict[str, Callable[[list[Run]], float]] = {
    "makespan": lambda runs: median(runs, lambda run: run.makespan),
    "TTFT p50": lambda runs: ttft(runs, 50),
    "TTFT p90": lambda runs: ttft(runs, 90),
}


def test_the_table(runs, print_table):
    """Each time is followed by what it is of the load's best; auto's beyond 1.1 of that has a mark."""
    print_table.append(f"Loads on two engines, {ROUNDS} rounds; times in seconds, and divided by the best")
    print_table.append(
        f"{'load':12}{'policy':18}{'cached':>8}{'split':>9}" + "".join(f"{name:>18}" for name in FIGURES)
    )
    for load in LOADS:
        best = {name: min(of(runs[load, policy]) for policy in POLICIES) for name, of in FIGURES.items()}
        for policy in POLICIES:
            own = runs[load, policy]
            line = (
                f"{load:12}{policy:18}{median(own, Run.cached):8.1%}{':'.join(map(str, own[-1].shares())):>9}"
            )
            for name, of in FIGURES.items():
                ratio = of(own) / best[name]
                mark = "!" if policy == "auto" and ratio > WORSE else " "
                line += f"{of(own):11.3f} {ratio:5.2f}{mark}"
            print_table.append(line)


@pytest.mark.parametrize("load", LOADS)
def test_every_request_is_answered_whatever_the_policy(runs, load):
    counts = {policy: {len(run.answers) for run in runs[load, policy]} for policy in POLICIES}
    expected = {"multi-turn": 60, "burst": 48, "mixed": 24 + 18 + 8}[load]
    assert counts == {policy: {expected} for policy in POLICIES}


def test_auto_spreads_a_burst_of_equal_prompts(runs):
    """cache_aware sent all 48 to one engine, since each held the whole prompt of the others."""
    for run in runs["burst", "auto"]:
        assert max(run.shares()) <= 40  # engines that share the cores with the clients decode unevenly


def test_auto_finds_in_caches_nearly_what_the_best_policy_finds(runs):
    """In conversations; a burst has next to nothing to find, and in the mixed load waiting may cost more."""
    cached = {policy: median(runs["multi-turn", policy], Run.cached) for policy in POLICIES}
    assert cached["auto"] >= max(cached.values()) - 0.1
