"""Prompts of /v1/messages and /v1/responses: what vLLM computes, what a router expects, what was cached.

One agent of each API takes its turns, one request at a time: system blocks, tools, thinking, tool calls and
their results. The engine's own rendering is what the router matches; it is compared with the prompt's tokens
that the response reports, and the router's expectation with the cached ones.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.engines.conftest import Fleet, skip_without_engines
from tests.engines.processes import BLOCK, MODEL, Engine, Router, call
from tests.engines.test_cached_tokens import words
from tests.engines.test_kv_events import trusts, wait_until_heard
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1500)]

TURNS = 20
SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "description": words(30, 7)}}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.197.fe{}; cch=e3a2f;"
FLAGS = ("--block-size", str(BLOCK), "--tokenize-timeout-ms", "30000", "--seed", "1")


def messages_body(turn: int, case: str = "") -> dict[str, Any]:
    """The conversation of Claude Code's form up to this turn. Cases share nothing."""
    system = [
        {"type": "text", "text": BILLING.format(turn)},  # another in each request, as it comes from some
        {"type": "text", "text": case + words(150, 1)},
        {"type": "text", "text": words(40, 2), "cache_control": {"type": "ephemeral"}},
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": words(20, 3)}]
    for number in range(turn):
        content: list[dict[str, Any]] = [{"type": "text", "text": words(30, 4, number)}]
        if number % 3 != 2:
            content.insert(0, {"type": "thinking", "thinking": words(24, 5, number), "signature": "s"})
        if number % 2:
            answer: Any = words(60, 6, number)
        else:
            use = {
                "type": "tool_use",
                "id": f"t{number}",
                "name": "read",
                "input": {"path": words(3, number)},
            }
            content.append(use)
            texts = [{"type": "text", "text": words(30, part, number)} for part in (7, 8)]
            answer = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": texts}]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": answer}]
    tools = [{"name": "read", "description": case + words(40, 9), "input_schema": SCHEMA}]
    return {"model": MODEL, "max_tokens": 4, "system": system, "tools": tools, "messages": messages}


def responses_body(turn: int, case: str = "") -> dict[str, Any]:
    """The same of Codex's form: the whole input each time, nothing stored."""
    items: list[dict[str, Any]] = [{"role": "user", "content": words(20, 3)}]
    for number in range(turn):
        text = {"type": "output_text", "text": words(30, 4, number), "annotations": []}
        said = {"type": "message", "id": f"m{number}", "status": "completed", "role": "assistant"}
        items.append(said | {"content": [text]})
        if number % 2:
            items.append({"role": "user", "content": words(60, 6, number)})
        else:
            items += [
                {
                    "type": "function_call",
                    "id": f"f{number}",
                    "call_id": f"c{number}",
                    "name": "read",
                    "arguments": json.dumps({"path": words(3, number)}),
                },
                {"type": "function_call_output", "call_id": f"c{number}", "output": words(60, 7, number)},
            ]
    tools = [{"type": "function", "name": "read", "description": case + words(40, 9), "parameters": SCHEMA}]
    return {
        "model": MODEL,
        "max_output_tokens": 4,
        "store": False,
        "instructions": case + words(150, 1),
        "tools": tools,
        "input": items,
    }


@dataclass(frozen=True)
class Api:
    """A path, and where its responses have the tokens of prompts."""

    path: str
    body: Callable[..., dict[str, Any]]
    usage: Callable[[dict[str, Any]], tuple[int, int]]  # of the prompt, and cached ones of these


def messages_usage(usage: dict[str, Any]) -> tuple[int, int]:
    cached = usage.get("cache_read_input_tokens") or 0
    return usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0), cached


def responses_usage(usage: dict[str, Any]) -> tuple[int, int]:
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


APIS = [
    Api("/v1/messages", messages_body, messages_usage),
    Api("/v1/responses", responses_body, responses_usage),
]


@pytest.fixture(scope="module")
def fleet(pytestconfig: pytest.Config) -> Iterator[Fleet]:
    skip_without_engines(pytestconfig)
    fleet = Fleet([Engine("engine-rendered-a", events=True), Engine("engine-rendered-b", events=True)])
    try:
        yield fleet
    finally:
        fleet.stop()


@contextlib.contextmanager
def routed(fleet: Fleet, events: bool) -> Iterator[Router]:
    """A router that knows what the engines hold, or nothing."""
    more = ("--kv-events", "on") if events else ("--kv-events", "off", "--tokenize", "worker")
    with fleet.router("auto", *FLAGS, *more) as router:
        if events:
            eventually(lambda: trusts(router) == ["exact", "exact"], "never exact", 60)
        yield router


@pytest.mark.parametrize("events", [True, False], ids=["events", "no-events"])
@pytest.mark.parametrize("api", APIS, ids=["messages", "responses"])
def test_the_router_expects_what_the_engine_finds_within_a_block(fleet, api, events, print_table):
    rows = []
    with routed(fleet, events) as router:
        for turn in range(TURNS):
            body = api.body(turn, f"{api.path} {events} ")
            response = call(router.url, "POST", api.path, body)
            assert response.status == 200, response.body
            prompt, cached = api.usage(response.json()["usage"])
            status = response.fields["x-vllm-router-cache-status"]
            matched, total, unit = re.fullmatch(r"(\d+)/(\d+) (.+)", status).groups()
            rows.append((turn, prompt, cached, int(matched) * BLOCK, int(total), unit))
            if events:
                wait_until_heard(router)
            else:
                eventually(lambda router=router, turn=turn: later_calls(router) >= turn, "its ids", 30)
        calls = router.metric("tokenize_calls_total"), later_calls(router)
    off = [abs(cached - expects) for _, _, cached, expects, _, _ in rows]
    print_table.append(
        f"{api.path}, {'with' if events else 'without'} KV events: {TURNS} turns, "
        f"{sum(row[1] for row in rows)} prompt tokens, {sum(row[2] for row in rows)} cached, "
        f"{sum(row[3] for row in rows)} expected, at most {max(off)} off; calls {calls}"
    )
    assert sum(row[2] for row in rows) > 0.7 * sum(row[1] for row in rows)
    assert max(off) <= BLOCK, rows


def later_calls(router: Router) -> float:
    return router.metric("background_tokenize_calls_total")


def test_rendered_ids_are_the_prompt_that_the_engine_counts(fleet):
    """Block for block: what is cached afterwards is exactly what was rendered."""
    fleet.bring_up()
    engine = fleet.engines[0]
    for api in APIS:
        for turn in (0, 1, 2, 3, 8):
            body = api.body(turn)
            ids = call(engine.url, "POST", f"{api.path}/render", body).json()["token_ids"]
            engine.forget_prefixes()
            said = call(engine.url, "POST", api.path, body)
            assert api.usage(said.json()["usage"])[0] == len(ids)
            again = call(
                engine.url, "POST", "/v1/completions", {"model": MODEL, "prompt": ids, "max_tokens": 1}
            )
            details = again.json()["usage"]["prompt_tokens_details"]
            assert details["cached_tokens"] == (len(ids) - 1) // BLOCK * BLOCK


def test_an_image_is_matched_by_text(fleet):
    with routed(fleet, events=False) as router:
        body = messages_body(0)
        source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        body["messages"][0]["content"] = [{"type": "image", "source": source}]
        call(router.url, "POST", "/v1/messages", body)  # a text model refuses it
        assert router.metric("tokenize_calls_total") == 0
