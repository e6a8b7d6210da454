"""Loads that policies are compared under, what came back of them, and the table of it.

They are closed loops, so they fit machines of any speed. A router needs `--decision-headers` for them.
"""

import http.client
import json
import os
import statistics
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.engines.processes import MODEL
from tests.engines.test_cached_tokens import words

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
    cpu: float = 0.0  # seconds of the engine that needed most
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, answer: Answer) -> None:
        with self._lock:
            self.answers.append(answer)

    def cached(self) -> float:
        return sum(a.cached for a in self.answers) / sum(a.prompt for a in self.answers)

    def computed(self) -> int:
        """Prompt tokens that the engine computed which computed most."""
        tokens: Counter[str] = Counter()
        for answer in self.answers:
            tokens[answer.worker] += answer.prompt - answer.cached
        return max(tokens.values())

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
    """Twelve users of three applications, four turns each, all at once."""
    return [chat(base, f"app{user % 3}/{user}", 4, 600, 120, 8) for user in range(12)]


def burst(base: str) -> list[Job]:
    """48 equal short chats at once."""

    def hello(run: Run) -> None:
        run.add(ask(base, [{"role": "user", "content": words(12, "hello")}], "ada", 16)[0])

    return [hello] * 48


def mixed(base: str) -> list[Job]:
    """Chats, questions about shared documents, and long prompts that share nothing, twelve at a time."""
    chats = [chat(base, f"app{user % 2}/{user}", 4, 500, 80, 8) for user in range(6)]
    questions = [chat(base, f"document{number % 3}/{number}", 1, 900, 30, 8) for number in range(18)]
    alone = [chat(base, f"alone{number}", 1, 0, 700, 8) for number in range(6)]
    return [
        job
        for jobs in zip(*[iter(chats)] * 3, *[iter(questions)] * 9, *[iter(alone)] * 3, strict=True)
        for job in jobs
    ]


LOADS: dict[str, tuple[Callable[[str], list[Job]], int]] = {  # and how many of its jobs run at once
    "multi-turn": (multi_turn, 12),
    "burst": (burst, 48),
    "mixed": (mixed, 12),
}


class Served(Protocol):
    """A router, or anything else that has an address."""

    @property
    def url(self) -> str: ...


def send(router: Served, load: str) -> Run:
    jobs, threads = LOADS[load][0](router.url), LOADS[load][1]
    run = Run()
    begun = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(job, run) for job in jobs]:
            future.result()
    run.makespan = time.monotonic() - begun
    return run


def median(runs: list[Run], figure: Callable[[Run], float]) -> float:
    return statistics.median(figure(run) for run in runs)


def ttft(runs: list[Run], percent: int) -> float:
    """A percentile over the requests of all rounds."""
    times = [answer.first_token for run in runs for answer in run.answers]
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


def mean_ttft(runs: list[Run]) -> float:
    """Over the requests of all rounds."""
    return statistics.mean(answer.first_token for run in runs for answer in run.answers)


FIGURES: dict[str, Callable[[list[Run]], float]] = {
    "busiest CPU": lambda runs: median(runs, lambda run: run.cpu),
    "makespan": lambda runs: median(runs, lambda run: run.makespan),
    "TTFT mean": mean_ttft,
    "TTFT p50": lambda runs: ttft(runs, 50),
    "TTFT p90": lambda runs: ttft(runs, 90),
}


def table(runs: Mapping[tuple[str, str], list[Run]], policies: Collection[str]) -> list[str]:
    """A line for each load and policy. Each time is followed by what it is of the best of `policies`.

    auto's beyond 1.1 of that has a mark. A figure that is 0 everywhere was not measured and is left out.
    """
    figures = {name: of for name, of in FIGURES.items() if any(of(own) for own in runs.values())}
    rounds = max(map(len, runs.values()))
    lines = [
        f"Loads on two engines, {rounds} rounds, load average {os.getloadavg()[0]:.0f}; computed: prompt "
        "tokens of the engine",
        "that computed most; times in seconds, and divided by the best policy's",
        f"{'load':12}{'policy':18}{'cached':>8}{'split':>9}{'computed':>10}"
        + "".join(f"{name:>18}" for name in figures),
    ]
    for (load, policy), own in sorted(runs.items(), key=lambda item: list(LOADS).index(item[0][0])):
        line = f"{load:12}{policy:18}{median(own, Run.cached):8.1%}"
        line += f"{':'.join(map(str, own[-1].shares())):>9}{median(own, Run.computed):10.0f}"
        for of in figures.values():
            ratio = of(own) / min(of(runs[load, other]) for other in policies)
            mark = "!" if policy == "auto" and ratio > WORSE else " "
            line += f"{of(own):11.3f} {ratio:5.2f}{mark}"
        lines.append(line)
    return lines
