"""Programs before two real engines whose caches are too small for all: what is found in them, off and on.

Fourteen agents of six turns, whose conversations together need twice what both caches hold. No turn begins
later than two minutes after the first one; times are printed and not compared, since other programs may run.
"""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.engines.conftest import Fleet, skip_without_engines
from tests.engines.loads import Message
from tests.engines.processes import BLOCK, MODEL, Engine, Router, call
from tests.engines.test_cached_tokens import words
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

CACHE = 4096  # tokens of each engine
AGENTS, TURNS = 14, 6
FIRST, MORE, RESPONSE = 450, 100, 8  # words, and tokens of a response
PAUSE = 1.0  # seconds of a tool, on average
PATIENCE = 240.0  # of a client
DEADLINE = 110.0  # the next turn of each agent is its last


@pytest.fixture
def tight(pytestconfig) -> Iterator[Fleet]:
    skip_without_engines(pytestconfig)
    flags = ["--num-gpu-blocks-override", str(CACHE // BLOCK), "--max-model-len", str(CACHE)]
    fleet = Fleet([Engine(f"engine-tight-{name}", flags=flags) for name in "ab"])
    try:
        yield fleet
    finally:
        fleet.stop()


@dataclass
class Run:
    """What the turns behind each agent's first one found, and how long all took."""

    seconds: float = 0.0
    prompt: int = 0
    cached: int = 0
    turns: int = 0
    longest: list[int] = field(default_factory=list)  # prompt of each agent
    waits: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.cached / self.prompt


def play(router: Router, mode: str, number: int, begun: float) -> Run:
    """One agent, which says when it has ended."""
    run, dice = Run(), random.Random(f"{mode} {number}")
    messages: list[Message] = [{"role": "user", "content": words(FIRST, mode, number)}]
    for turn in range(TURNS):
        last = turn == TURNS - 1 or time.monotonic() - begun > DEADLINE
        fields = {"x-session-id": f"{mode}-{number}"} | ({"x-dynamo-session-final": "true"} if last else {})
        body = {"model": MODEL, "messages": messages, "max_tokens": RESPONSE, "ignore_eos": True}
        sent = time.monotonic()
        response = call(router.url, "POST", "/v1/chat/completions", body, fields, timeout=PATIENCE)
        assert response.status == 200, response.body
        run.waits.append(time.monotonic() - sent)
        usage = response.json()["usage"]
        run.turns += 1
        if turn > 0:
            run.prompt += usage["prompt_tokens"]
            run.cached += (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0)
        run.longest = [usage["prompt_tokens"]]
        if last:
            break
        text = response.json()["choices"][0]["message"]["content"] or ""
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": words(MORE, mode, number, turn)},
        ]
        time.sleep(dice.expovariate(1 / PAUSE))
    return run


def play_all(fleet: Fleet, mode: str) -> tuple[Run, str]:
    flags = ("--block-size", str(BLOCK), "--program-admission", mode)
    with fleet.router("auto", *flags) as router:
        for engine in fleet.engines:
            engine.forget_prefixes()
        engines = len(fleet.engines)
        eventually(
            lambda: router.log.read_text().count("its cache holds") == engines, "capacities are not known"
        )
        begun = time.monotonic()
        with ThreadPoolExecutor(AGENTS) as pool:
            runs = list(pool.map(lambda number: play(router, mode, number, begun), range(AGENTS)))
        whole = Run(seconds=time.monotonic() - begun)
        for run in runs:
            whole.prompt += run.prompt
            whole.cached += run.cached
            whole.turns += run.turns
            whole.longest += run.longest
            whole.waits += run.waits
        return whole, router.metrics_text()


def test_some_programs_wait_and_the_others_find_their_prompts(tight: Fleet, print_table):
    off, _ = play_all(tight, "off")
    on, metrics = play_all(tight, "on")
    print_table.append(f"{AGENTS} agents, {sum(off.longest)} tokens before {2 * CACHE} of cache")
    print_table.append("programs   turns/min   found in caches   seconds of a turn: p50, longest")
    for mode, run in (("off", off), ("on", on)):
        waits = sorted(run.waits)
        print_table.append(
            f"{mode:8} {60 * run.turns / run.seconds:11.1f} {run.share:17.2f} "
            f"{waits[len(waits) // 2]:22.1f}, {waits[-1]:.1f}"
        )
    assert sum(off.longest) > 1.2 * 2 * CACHE, "the caches hold all; the test proves nothing"
    assert 'vllm_router_program_turns_total{how="waited"}' in metrics
    assert on.share > off.share + 0.1
