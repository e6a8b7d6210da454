"""Streams that go on at another real engine, when theirs is killed and when it drains.

The engines compute in float32, in which a stream is the same alone and among others. Grammars make the random
model say what the test is about: characters of several bytes, a stop string that it almost says often, and
calls of a tool.
"""

import contextlib
import functools
import http.client
import json
import statistics
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.engines.conftest import Fleet, skip_without_engines
from tests.engines.processes import HOME, MODEL, Engine, Router, call
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOKENS = 400  # of each stream at most; grammars end earlier, whatever tokens the model takes for their text
EVENTS_BEFORE = 15  # of each stream, when its worker is taken away
PATIENCE = 240.0
CONTINUED = ("--continue-streams", "verified", "--retry-budget", "1")

WIDE = "⛵ dérive à 海 🌊 "
ALMOST = "(a|b|c)(d|e) STO "
LONG = " ".join(f"word{number} é 🌊" for number in range(20))
ARGUMENTS = {"type": "object", "properties": {"text": {"enum": [LONG]}}, "required": ["text"]}
TOOL = {"type": "function", "function": {"name": "find", "parameters": ARGUMENTS}}
# Unless it is strict, the arguments of a tool that is named are any JSON.
STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}
NAMED = {"type": "function", "function": {"name": "find"}}
IN_HERMES = f'<tool_call>\n{{"name": "find", "arguments": {{"text": "{LONG}"}}}}\n</tool_call>'


def expression(text: str) -> str:
    """A regular expression for just this text."""
    return "".join("\\" + letter if letter in "{}[]().*+?|\\^$" else letter for letter in text)


def grammar(regex: str) -> dict[str, Any]:
    return {"structured_outputs": {"regex": regex}}


# By name: the path, and what the request says beside its prompt.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": (COMPLETIONS, {"repetition_penalty": 1.2, "ignore_eos": True}),
    "chat": (CHAT, {"repetition_penalty": 1.2, "ignore_eos": True}),
    # vLLM takes several choices only where it samples.
    "two choices": (
        CHAT,
        {"n": 2, "temperature": 1, "seed": 3, "ignore_eos": True, "max_tokens": TOKENS // 2},
    ),
    "seed": (COMPLETIONS, {"temperature": 1, "seed": 7, "ignore_eos": True}),
    "characters of several bytes": (CHAT, grammar(f"({WIDE}){{14}}")),
    "stop": (COMPLETIONS, {"stop": ["STOP"], **grammar(f"({ALMOST}){{50}}STOP(d|e){{90}}")}),
    "a tool that is named": (CHAT, {"tools": [STRICT], "tool_choice": NAMED}),
    "a tool by the parser": (CHAT, {"tools": [TOOL], **grammar(expression(IN_HERMES))}),
}
# Each kind is once at an even place and once at an odd one: two engines get them by turns.
STREAMS = [*KINDS, *list(KINDS)[1:], next(iter(KINDS))]


@dataclass
class Said:
    """What a stream says, whatever its events are."""

    ids: set[str] = field(default_factory=set)
    created: set[int] = field(default_factory=set)
    roles: int = 0
    texts: dict[tuple[int, str], str] = field(default_factory=dict)  # by choice and kind
    call_ids: dict[tuple[int, int], int] = field(default_factory=dict)  # how many, by choice and call
    ends: list[tuple[int, str, Any]] = field(default_factory=list)
    usage: list[tuple[int, int, int]] = field(default_factory=list)
    done: int = 0

    def add(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done += 1
            return
        event = json.loads(data)
        assert "error" not in event, event
        assert self.done == 0, "an event behind the last one"
        self.ids.add(event["id"])
        self.created.add(event["created"])
        if usage := event.get("usage"):
            names = ("prompt_tokens", "completion_tokens", "total_tokens")
            self.usage.append(tuple(usage[name] for name in names))
        for choice in event["choices"]:
            self._add_choice(choice)

    def _add_choice(self, choice: dict[str, Any]) -> None:
        index, delta = choice["index"], choice.get("delta", {})
        self.roles += bool(delta.get("role"))
        self._say(index, "text", choice.get("text") or delta.get("content"))
        self._say(index, "reasoning", delta.get("reasoning"))
        for called in delta.get("tool_calls") or []:
            function = called.get("function") or {}
            self._say(index, f"name {called['index']}", function.get("name"))
            self._say(index, f"arguments {called['index']}", function.get("arguments"))
            if called.get("id"):
                key = (index, called["index"])
                self.call_ids[key] = self.call_ids.get(key, 0) + 1
        if choice.get("finish_reason"):
            self.ends.append((index, choice["finish_reason"], choice.get("stop_reason")))

    def _say(self, index: int, kind: str, text: str | None) -> None:
        if text:
            self.texts[index, kind] = self.texts.get((index, kind), "") + text


@functools.cache
def blanks() -> list[str]:
    """The ids of tokens that are nothing else."""
    vocabulary = json.loads((HOME / "model" / "tokenizer.json").read_text())["model"]["vocab"]
    return [str(number) for text, number in vocabulary.items() if not text.strip("ĠĊĉč")]


class Client(threading.Thread):
    """One stream; its request is sent when the constructor returns."""

    def __init__(self, url: str, number: int, kind: str) -> None:
        super().__init__(daemon=True)
        self.kind = kind
        self.said = Said()
        self.problem = ""
        self.gap = 0.0
        self.events = 0
        path, members = KINDS[kind]
        text = f"Stream {number} is about {kind}."
        asked = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
        body = {"model": MODEL, "max_tokens": TOKENS, "temperature": 0, "stream": True, **asked, **members}
        body["stream_options"] = {"include_usage": True}
        if "named" in kind:
            # Its grammar allows blanks between members for ever, whatever the engine's flags say.
            body["logit_bias"] = dict.fromkeys(blanks(), -100)
        address = urllib.parse.urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE)
        head = {"content-type": "application/json", "x-request-id": f"stream-{number}"}
        self._connection.request("POST", path, json.dumps(body), head)
        self.worker = ""
        self.start()

    def run(self) -> None:
        with contextlib.closing(self._connection):
            try:
                response = self._connection.getresponse()
                assert response.status == 200, response.read()
                self.worker = response.headers.get("x-vllm-router-worker", "")
                last = time.monotonic()
                for line in response:
                    if not line.startswith(b"data: "):
                        continue
                    now = time.monotonic()
                    self.gap, last = max(self.gap, now - last), now
                    self.said.add(line.removeprefix(b"data: ").strip())
                    self.events += 1
            except (OSError, http.client.HTTPException, AssertionError, KeyError, ValueError) as error:
                self.problem = repr(error)
        if not self.said.done and not self.problem:
            self.problem = "the stream was cut"


def begin(url: str) -> list[Client]:
    return [Client(url, number, kind) for number, kind in enumerate(STREAMS)]


def end(clients: list[Client]) -> None:
    for client in clients:
        client.join(PATIENCE)
        assert not client.is_alive(), f"{client.kind} never ended"


def wait_for_the_middle(clients: list[Client]) -> None:
    def is_there() -> bool:
        assert all(client.is_alive() for client in clients), [
            (client.kind, client.problem) for client in clients if not client.is_alive()
        ]
        return min(client.events for client in clients) >= EVENTS_BEFORE

    eventually(is_there, "the streams never began", PATIENCE)


@pytest.fixture(scope="module")
def exact(pytestconfig: pytest.Config) -> Iterator[Fleet]:
    skip_without_engines(pytestconfig)
    # A model without training could put blanks between the members of an object for ever.
    grammars = {"backend": "xgrammar", "disable_any_whitespace": True}
    flags = ["--dtype", "float32", "--structured-outputs-config", json.dumps(grammars)]
    fleet = Fleet([Engine("engine-exact-a", flags=flags), Engine("engine-exact-b", flags=flags)])
    try:
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def undisturbed(exact: Fleet) -> list[Said]:
    """Of all streams at once, at one engine, without a router."""
    exact.bring_up()
    clients = begin(exact.engines[1].url)
    end(clients)
    for client in clients:
        assert not client.problem, (client.kind, client.problem)
        must_be_what_it_is_about(client.kind, client.said)
    return [client.said for client in clients]


def must_be_what_it_is_about(kind: str, said: Said) -> None:
    """So that a model or an engine that does not do what the kinds are for fails the test."""
    text = "".join(said.texts.values())
    if kind == "characters of several bytes":
        assert text == 14 * WIDE
    elif kind == "stop":
        assert [reason for _, reason, _ in said.ends] == ["stop"]
        assert text.count("STO ") == 50
        assert "STOP" not in text
    elif "tool" in kind:
        assert said.texts[0, "name 0"] == "find"
        assert json.loads(said.texts[0, "arguments 0"]) == {"text": LONG}
        assert said.call_ids == {(0, 0): 1}
    elif kind == "two choices":
        assert {index for index, _ in said.texts} == {0, 1}


def take_away(
    exact: Fleet,
    undisturbed: list[Said],
    table: list[str],
    what: str,
    why: str,
    take: Callable[[Router, Engine], None],
) -> None:
    """Takes an engine from sixteen streams in the middle, and compares all of them."""
    victim = exact.engines[0]
    with exact.router("round_robin", *CONTINUED) as router:
        clients = begin(router.url)
        wait_for_the_middle(clients)
        take(router, victim)
        end(clients)
        lost = [client for client in clients if client.worker == victim.url]
        assert len(lost) == len(STREAMS) // 2
        different = [
            (client.kind, client.problem, client.said, whole)
            for client, whole in zip(clients, undisturbed, strict=True)
            if client.problem or client.said != replaced(whole, client.said)
        ]
        gaps = [client.gap for client in lost]
        table += [
            f"{what}: {len(clients) - len(different)} of {len(clients)} streams equal to undisturbed ones",
            f"{len(lost)} went on elsewhere; gap p50 {statistics.median(gaps):.2f} s, most {max(gaps):.2f} s",
        ]
        assert different == []
        assert all(len(client.said.created) == 1 for client in clients)
        continued = f'vllm_router_streams_continued_total{{why="{why}",method="rerun"}} {len(lost)}\n'
        eventually(lambda: continued in router.metrics_text(), "other streams were continued")
        assert router.metric("streams_cut_total") == 0
        eventually(lambda: router.load() == 0, "load that nobody returned")


def replaced(whole: Said, said: Said) -> Said:
    """With the other run's clock."""
    return Said(**{**vars(whole), "created": said.created})


def test_streams_of_an_engine_that_drains_are_those_of_an_undisturbed_run(exact, undisturbed, print_table):
    def drain(router: Router, victim: Engine) -> None:
        sent = {"url": victim.url, "timeout_secs": 0}
        assert call(router.url, "POST", "/admin/drain", sent).status == 202

    take_away(exact, undisturbed, print_table, "Drain under 16 streams", "drained", drain)


def test_streams_of_an_engine_that_is_killed_are_those_of_an_undisturbed_run(exact, undisturbed, print_table):
    def kill(_router: Router, victim: Engine) -> None:
        victim.kill()

    take_away(exact, undisturbed, print_table, "SIGKILL under 16 streams", "lost", kill)
