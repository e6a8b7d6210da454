"""Prompt tokens that vLLM found in its cache, and those that the router expected there, in conversations.

Requests are sent one after the other and everything fits into the caches, so both numbers can be computed:
what an engine holds from the tokens that it was sent and has generated, what the router expects from prompts.
"""

import random
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from tests.engines.processes import BLOCK, MODEL, Router, call
from tests.fakes.wire import eventually
from tests.models.routing_text import routing_text

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

USERS = 5  # an odd number, so that round_robin sends each user's turns to alternating engines
SYSTEMS = 3  # system prompts, which users share
TURNS = 4
ANSWER = BLOCK + 8  # tokens, so that an answer completes a block
TEXT = "the router sends a prompt to an engine whose cache holds most of its blocks and counts open requests"
WORDS = TEXT.split()


@dataclass
class Turn:
    """One request, and what engine and router said of it."""

    user: int
    number: int  # of the user's turns
    prompt: list[int]
    output: list[int]
    cached: int  # tokens, as the engine says
    text: Any  # what the router compares: bytes, or the prompt's token ids
    worker: str
    matched: int  # in the router's unit
    total: int
    unit: str

    @property
    def expected(self) -> float:
        """Tokens that the router expected to be cached: the share of its unit."""
        return len(self.prompt) * self.matched / self.total if self.total else 0.0


@dataclass(frozen=True)
class Case:
    """A way to route, and the unit of `x-vllm-router-cache-status`."""

    policy: str
    flags: tuple[str, ...] = ()
    prompts: str = "chats"  # or token ids
    unit: int = 0  # bytes or ids that the router compares at once; 0: it says nothing

    @property
    def name(self) -> str:
        how = ["--tokenize worker"] if "--tokenize" in self.flags else []
        return " ".join([self.policy, *how, *([] if self.prompts == "chats" else [self.prompts])])


BLOCKS = ("--block-size", str(BLOCK))
TOKENIZE = (*BLOCKS, "--tokenize", "worker", "--tokenize-timeout-ms", "30000")
CASES = [
    Case("round_robin"),
    Case("cache_aware", unit=1),
    Case("vllm_cache_aware", BLOCKS, unit=4 * BLOCK),
    Case("auto", BLOCKS, unit=4 * BLOCK),
    Case("vllm_cache_aware", TOKENIZE),
    Case("auto", TOKENIZE),
    Case("round_robin", prompts="token ids"),
    Case("cache_aware", prompts="token ids", unit=16),
    Case("vllm_cache_aware", BLOCKS, prompts="token ids", unit=BLOCK),
    Case("auto", BLOCKS, prompts="token ids", unit=BLOCK),
]


def words(count: int, *seed: int) -> str:
    draw = random.Random(repr(seed))
    return " ".join(draw.choice(WORDS) for _ in range(count))


def ids(count: int, *seed: int) -> list[int]:
    draw = random.Random(repr(seed))
    return [draw.randrange(300, 4000) for _ in range(count)]


@dataclass
class Conversation:
    """What one user has said and was answered, as the next request's prompt."""

    user: int
    prompts: str
    messages: list[dict[str, str]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def body(self, turn: int) -> tuple[str, dict[str, Any]]:
        system = self.user % SYSTEMS
        common = {
            "model": MODEL,
            "max_tokens": ANSWER,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        if self.prompts == "chats":
            if turn == 0:
                self.messages.append({"role": "system", "content": words(250, system)})
            self.messages.append({"role": "user", "content": words(50, self.user, turn)})
            return "/v1/chat/completions", common | {"messages": self.messages}
        self.tokens += ids(250, system) if turn == 0 else []
        self.tokens += ids(50, self.user, turn)
        return "/v1/completions", common | {"prompt": self.tokens}

    def take(self, choice: dict[str, Any]) -> None:
        if self.prompts == "chats":
            self.messages.append({"role": "assistant", "content": choice["message"]["content"]})
        else:
            self.tokens += choice["token_ids"]


def converse(router: Router, case: Case) -> list[Turn]:
    """All users take their turns, one request at a time."""
    turns = []
    conversations = [Conversation(user, case.prompts) for user in range(USERS)]
    for turn in range(TURNS):
        for conversation in conversations:
            path, body = conversation.body(turn)
            response = call(router.url, "POST", path, body)
            assert response.status == 200, response.body
            said = response.json()
            (choice,) = said["choices"]
            details = said["usage"]["prompt_tokens_details"] or {}
            status = response.fields.get("x-vllm-router-cache-status", "0/0 nothing")
            matched, total, unit = re.fullmatch(r"(\d+)/(\d+) (.+)", status).groups()
            turns.append(
                Turn(
                    conversation.user,
                    turn,
                    prompt=choice.get("prompt_token_ids") or said["prompt_token_ids"],
                    output=choice["token_ids"],
                    cached=details.get("cached_tokens", 0),
                    text=routing_text(body, path),
                    worker=response.fields["x-vllm-router-worker"],
                    matched=int(matched),
                    total=int(total),
                    unit=unit,
                )
            )
            conversation.take(choice)
    return turns


def common(one: Any, other: Any) -> int:
    """Of two sequences, how many elements are equal before the first that is not."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def longest(prefixes: list[Any], text: Any) -> int:
    return max((common(prefix, text) for prefix in prefixes), default=0)


def before(turns: list[Turn], turn: Turn) -> list[Turn]:
    """What the same engine was sent before."""
    earlier = turns[: next(position for position, other in enumerate(turns) if other is turn)]
    return [other for other in earlier if other.worker == turn.worker]


def held(turns: list[Turn], turn: Turn) -> int:
    """Tokens of a prompt that its engine must have in its cache: whole blocks of earlier prompts and answers.

    The last token of an answer was never an input, and the last one of a prompt is always computed.
    """
    known = [other.prompt + other.output[:-1] for other in before(turns, turn)]
    return min(longest(known, turn.prompt), len(turn.prompt) - 1) // BLOCK * BLOCK


def sent(turns: list[Turn], turn: Turn, unit: int) -> int:
    """Units of a prompt that its engine was sent before in prompts, answers left out."""
    return longest([other.text for other in before(turns, turn)], turn.text) // unit


def switches(turns: list[Turn]) -> int:
    """How often a turn went to another engine than the user's turn before."""
    workers = [[turn.worker for turn in turns if turn.user == user] for user in range(USERS)]
    return sum(one != other for own in workers for one, other in pairwise(own))


@dataclass
class Result:
    """A case that was run."""

    case: Case
    turns: list[Turn]
    counted: dict[str, float]  # by the router's metrics

    def sum(self, name: str) -> float:
        return sum(getattr(turn, name) for turn in self.turns)

    def row(self) -> str:
        prompt = sum(len(turn.prompt) for turn in self.turns)
        cells = [f"{prompt}", f"{self.sum('cached'):.0f}", f"{self.sum('cached') / prompt:.3f}"]
        if self.turns[0].unit == "nothing":
            cells += ["-", "-", "-"]
        else:
            under = sum(turn.expected < turn.cached - BLOCK for turn in self.turns)
            over = sum(turn.expected > turn.cached + BLOCK for turn in self.turns)
            cells += [f"{self.sum('expected') / prompt:.3f}", f"{under}", f"{over}"]
        return row(self.case.name, *cells, f"{switches(self.turns)}")


def row(name: str, *cells: str) -> str:
    return f"{name:36}" + "".join(f"{cell:>9}" for cell in cells)


@pytest.fixture(scope="module")
def results(fleet) -> dict[str, Result]:
    """Every case, each with empty caches and a new router."""
    made = {}
    for case in CASES:
        with fleet.router(case.policy, "--seed", "1", *case.flags) as router:
            for engine in fleet.engines:
                engine.forget_prefixes()
            turns = converse(router, case)
            eventually(lambda router=router: router.load() == 0)
            names = ("prompt_tokens_total", "cached_tokens_total")
            made[case.name] = Result(case, turns, {name: router.metric(name) for name in names})
    return made


@pytest.fixture(params=CASES, ids=lambda case: case.name.replace(" ", "-"))
def result(request, results) -> Result:
    return results[request.param.name]


def test_the_table(results, print_table):
    print_table.append(
        "Tokens of prompts: sent, cached as vLLM says, their share, the share that the router expected;"
    )
    print_table.append(
        "requests of which it expected a block too little or too much; turns that changed the engine"
    )
    print_table.append(row("policy", "prompt", "cached", "share", "expected", "under", "over", "switches"))
    print_table += [result.row() for result in results.values()]


def test_an_engine_reports_what_it_must_hold(result):
    assert [turn.cached for turn in result.turns] == [held(result.turns, turn) for turn in result.turns]


def test_the_routers_metrics_count_what_engines_report(result):
    assert result.counted["prompt_tokens_total"] == sum(len(turn.prompt) for turn in result.turns)
    assert result.counted["cached_tokens_total"] == result.sum("cached")


def test_the_router_expects_what_it_has_sent(result):
    unit = result.case.unit
    if not unit:
        pytest.skip("says nothing, or mixes bytes and token ids")
    in_units = 1 if result.case.policy == "cache_aware" else unit  # says bytes or ids; the others say blocks
    assert [turn.matched for turn in result.turns] == [
        sent(result.turns, turn, unit) * unit // in_units for turn in result.turns
    ]


@pytest.mark.parametrize("policy", ["vllm_cache_aware", "auto"])
def test_with_token_ids_the_router_lacks_only_the_blocks_that_answers_completed(results, policy):
    turns = results[f"{policy} token ids"].turns
    for turn in turns:
        missed = turn.cached - turn.matched * BLOCK
        assert missed in ((0,) if turn.number == 0 else (0, BLOCK, 2 * BLOCK))


@pytest.mark.parametrize("policy", ["vllm_cache_aware", "auto"])
def test_with_token_ids_from_a_worker_the_first_turns_are_exact(results, policy):
    # Later turns go on in blocks of bytes, which are worth more or less than 32 tokens.
    first = [turn for turn in results[f"{policy} --tokenize worker"].turns if turn.number == 0]
    assert [turn.matched * BLOCK for turn in first] == [turn.cached for turn in first]
    assert [turn.total for turn in first] == [len(turn.prompt) // BLOCK for turn in first]


def test_round_robin_changes_the_engine_with_each_turn_and_policies_that_match_prompts_never(results):
    for result in results.values():
        turns_after_the_first = USERS * (TURNS - 1)
        assert switches(result.turns) == (turns_after_the_first if result.case.policy == "round_robin" else 0)


@pytest.mark.parametrize("prompts", ["chats", "token ids"])
def test_policies_that_match_prompts_find_more_in_caches_than_round_robin(results, prompts):
    cached = {
        result.case.name: result.sum("cached")
        for result in results.values()
        if result.case.prompts == prompts
    }
    baseline = cached.pop("round_robin" if prompts == "chats" else "round_robin token ids")
    assert {name for name, count in cached.items() if count <= baseline} == set()
