"""A prefill and a decode engine with NIXL behind the router: right responses, and no blocks held for nobody.

Both engines live as long as this module, and the last tests kill one of them. "Fact n" is a row of what was
seen of vLLM 0.32.0 with NIXL without a router.
"""

import contextlib
import http.client
import json
import random
import socket
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engines.conftest import skip_without_engines
from tests.engines.pd_engines import LEASE, SLOW, Pair, PairRouter, ReferenceRouter, missing
from tests.engines.processes import BLOCK, CONTEXT, MODEL, Response, call
from tests.fakes.wire import eventually
from tests.fakes.worker import SlowPort

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
WORDS = ["users", "offer", "the", "permission", "developers", "license", "is", "covered", "by", "of", "work"]


@pytest.fixture(scope="module")
def pair(pytestconfig: pytest.Config) -> Iterator[Pair]:
    skip_without_engines(pytestconfig)
    if (reason := missing()) is not None:
        pytest.skip(reason)
    pair = Pair()
    try:
        yield pair
    finally:
        pair.stop()


@pytest.fixture(scope="module")
def started(pair: Pair) -> Iterator[PairRouter]:
    pair.bring_up()
    with pair.router() as router:
        yield router


@pytest.fixture
def router(pair: Pair, started: PairRouter) -> PairRouter:
    """In front of engines that serve and hold nothing."""
    pair.bring_up()
    pair.must_be_idle(2 * LEASE)
    eventually(lambda: started.load() == 0 and started.is_ready(), "an earlier request did not end")
    return started


def text_of(words: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def user(words: int, seed: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": text_of(words, seed)}]


def completion(number: int, words: int = 200, **members: Any) -> dict[str, Any]:
    prompt = text_of(words, number)
    return {"model": MODEL, "prompt": prompt, "max_tokens": 16, "temperature": 0, **members}


def send(url: str, path: str, body: dict[str, Any]) -> socket.socket:
    """Sends a request whole, and leaves the rest to the caller."""
    data = json.dumps(body).encode()
    address = urllib.parse.urlsplit(url)
    client = socket.create_connection((address.hostname or "", address.port or 0), timeout=SLOW)
    head = f"POST {path} HTTP/1.1\r\nHost: pair\r\nContent-Length: {len(data)}\r\n"
    client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
    return client


def ask(url: str, path: str, body: dict[str, Any]) -> Response:
    return call(url, "POST", path, body, timeout=SLOW)


class Asking:
    """A request whose response is waited for on a thread of its own."""

    def __init__(self, url: str, path: str, body: dict[str, Any]) -> None:
        self.response: Response | None = None

        def ask_once() -> None:
            self.response = ask(url, path, body)

        self._thread = threading.Thread(target=ask_once, daemon=True)
        self._thread.start()

    def get(self) -> Response:
        self._thread.join(2 * SLOW)
        assert self.response is not None, "there was no response"
        return self.response


class Counted:
    """How counters of the router have risen since."""

    def __init__(self, router: PairRouter) -> None:
        self._router = router
        self._before = self._now()

    def _now(self) -> dict[str, Counter[str]]:
        labels = {"pd_claims_total": "end", "pd_plan_total": "kind", "pd_local_total": "reason"}
        return {name: Counter(self._router.labelled(name, label)) for name, label in labels.items()}

    def _rise(self, name: str) -> dict[str, int]:
        return dict(self._now()[name] - self._before[name])

    def claims(self) -> dict[str, int]:
        return self._rise("pd_claims_total")

    def plans(self) -> dict[str, int]:
        return self._rise("pd_plan_total")

    def local(self) -> dict[str, int]:
        return self._rise("pd_local_total")


# ---- what a response says

# Random, and `usage`, which says how much of the prompt was cached.
UNEQUAL = {
    "id",
    "item_id",
    "request_id",
    "created",
    "created_at",
    "completed_at",
    "system_fingerprint",
    "usage",
}


def without_random(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_random(inner) for name, inner in value.items() if name not in UNEQUAL}
    return [without_random(inner) for inner in value] if isinstance(value, list) else value


def events_of(body: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


def said(response: Response) -> Any:
    """What is not random. Of a stream its text and how it ended, since tokens may share an event."""
    assert response.status == 200, response.body
    if "text/event-stream" not in response.fields.get("content-type", ""):
        return without_random(response.json())
    text, ends = "", []
    for event in events_of(response.body):
        assert "error" not in event, event
        for choice in event.get("choices", []):
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
            ends += [choice["finish_reason"]] if choice.get("finish_reason") else []
        delta = event.get("delta", "")
        text += delta if isinstance(delta, str) else delta.get("text") or ""
        ends += [event["type"]] if event.get("type") in ("message_stop", "response.completed") else []
    assert ends, response.body
    return text, ends


def tokens_of(response: Response) -> tuple[int, int]:
    """Of the prompt, however a cache divides it, and generated ones."""
    usage = response.json()["usage"]
    cached = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    prompt = usage.get("prompt_tokens", usage.get("input_tokens", 0) + cached)
    return prompt, usage.get("completion_tokens", usage.get("output_tokens"))


INTEGER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": INTEGER}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": INTEGER}}
ON = {"stream": True, "stream_options": {"include_usage": True}}
SAMPLED = {"model": MODEL, "max_tokens": 16, "temperature": 0}
SAID: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": (COMPLETIONS, completion(1)),
    "completion-stream": (COMPLETIONS, completion(2, **ON)),
    "completion-short": (COMPLETIONS, completion(3, prompt="hi", max_tokens=7)),
    "completion-one-token": (COMPLETIONS, completion(4, max_tokens=1)),
    "completion-min_tokens": (COMPLETIONS, completion(5, min_tokens=8)),
    "completion-list-of-one": (COMPLETIONS, completion(6, prompt=[text_of(200, 6)])),
    "completion-tokens": (COMPLETIONS, completion(7, prompt=list(range(100, 300)))),
    "completion-logprobs": (COMPLETIONS, completion(8, 20, logprobs=2, max_tokens=4)),
    "completion-echo": (COMPLETIONS, completion(9, 20, echo=True, max_tokens=4)),
    "completion-echo-logprobs": (COMPLETIONS, completion(10, 20, echo=True, logprobs=2, max_tokens=4)),
    "completion-prompt_logprobs": (COMPLETIONS, completion(11, 20, prompt_logprobs=1, max_tokens=4)),
    "completion-stops-at-first": (COMPLETIONS, completion(12, logit_bias={"0": 100})),
    "completion-seed": (COMPLETIONS, completion(13, temperature=1, seed=7)),
    "chat": (CHAT, SAMPLED | {"messages": user(200, 14)}),
    "chat-stream": (CHAT, SAMPLED | {"messages": user(200, 15), **ON}),
    "chat-max_completion_tokens": (
        CHAT,
        {"model": MODEL, "max_completion_tokens": 16, "temperature": 0, "messages": user(200, 16)},
    ),
    "chat-logprobs": (CHAT, SAMPLED | {"messages": user(20, 17), "logprobs": True, "top_logprobs": 2}),
    "chat-prompt_logprobs": (CHAT, SAMPLED | {"messages": user(20, 18), "prompt_logprobs": 1}),
    "chat-tools-required": (
        CHAT,
        SAMPLED | {"messages": user(200, 19), "tools": TOOLS, "tool_choice": "required", "max_tokens": 40},
    ),
    "chat-tools-named": (
        CHAT,
        SAMPLED
        | {
            "messages": user(200, 20),
            "tools": TOOLS,
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "max_tokens": 40,
        },
    ),
    "chat-json_schema": (CHAT, SAMPLED | {"messages": user(200, 21), "response_format": SCHEMA}),
    "responses": (
        RESPONSES,
        {"model": MODEL, "input": text_of(200, 22), "max_output_tokens": 16, "temperature": 0},
    ),
    "responses-stream": (
        RESPONSES,
        {
            "model": MODEL,
            "input": text_of(200, 23),
            "max_output_tokens": 16,
            "temperature": 0,
            "stream": True,
        },
    ),
    "messages": (MESSAGES, SAMPLED | {"messages": user(200, 24)}),
    "messages-stream": (MESSAGES, SAMPLED | {"messages": user(200, 25), "stream": True}),
}


@pytest.mark.parametrize("name", SAID)
def test_two_stages_say_what_a_single_engine_says(pair, router, name):
    path, body = SAID[name]
    pair.forget_prefixes()
    counted, pulls = Counted(router), pair.decode.metric("vllm:nixl_xfer_time_seconds_count")
    paired = ask(router.url, path, body)
    pair.must_be_idle()
    assert counted.plans() == {"two_stages": 1}
    assert counted.claims() == {"redeemed": 1}
    # Decode computes a prompt whose log probabilities are wanted itself, and has prefill free the blocks.
    pulled = "echo-logprobs" not in name and "prompt_logprobs" not in name
    assert pair.decode.metric("vllm:nixl_xfer_time_seconds_count") == pulls + pulled
    pair.decode.forget_prefixes()
    alone = ask(pair.decode.url, path, body)
    assert said(paired) == said(alone)
    if "stream" not in body:
        assert tokens_of(paired) == tokens_of(alone)


def test_of_the_prompts_tokens_as_many_are_cached_as_prefill_had(pair, router):
    """Fact 7: decode says of its prompt what prefill found in its cache."""
    pair.forget_prefixes()

    def cached(url: str) -> int:
        details = ask(url, COMPLETIONS, completion(30)).json()["usage"]["prompt_tokens_details"]
        return details["cached_tokens"] if details else 0

    assert cached(router.url) == 0
    pair.decode.forget_prefixes()
    assert cached(router.url) > BLOCK


# ---- what is served by one engine


def test_lists_of_prompts_and_several_choices_are_right_and_strand_nothing(pair, router):
    """Facts 9, 10 and 35: in two stages the first is wrong text, the second ends decode's process."""
    bodies = [
        completion(40, prompt=[text_of(200, 40), text_of(60, 41)]),
        completion(42, prompt=["hi there", text_of(200, 42)]),
        completion(43, prompt=[list(range(100, 110)), list(range(100, 300))]),
        completion(44, n=2, temperature=0.8, seed=7, max_tokens=8),
    ]
    for body in bodies:
        pair.forget_prefixes()
        counted = Counted(router)
        routed = ask(router.url, COMPLETIONS, body)
        assert pair.prefill.usage() == 0
        assert counted.plans() == {"local": 1}
        pair.decode.forget_prefixes()
        assert said(routed) == said(ask(pair.decode.url, COMPLETIONS, body))
        assert len(routed.json()["choices"]) == 2
    assert all(engine.is_ready() for engine in pair.engines)


def parameters_of_prefill(pair: Pair, body: dict[str, Any]) -> dict[str, Any]:
    """As a client would get them that reaches prefill directly; its blocks stay held for the lease."""
    names = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")
    asked = {"do_remote_decode": True, "do_remote_prefill": False, **dict.fromkeys(names)}
    members = {"max_tokens": 1, "kv_transfer_params": asked}
    parameters = ask(pair.prefill.url, COMPLETIONS, body | members).json()["kv_transfer_params"]
    assert isinstance(parameters, dict)
    return parameters


def test_parameters_of_a_client_end_no_engine_and_read_nobodys_blocks(pair, router):
    """Facts 19, 25 and 26."""
    stolen = parameters_of_prefill(pair, completion(50))
    half = {name: value for name, value in stolen.items() if name != "remote_host"}
    few = stolen | {"remote_block_ids": [stolen["remote_block_ids"][0][:1]]}
    other = completion(51, 150)
    expected = said(ask(pair.decode.url, COMPLETIONS, other))
    chat = SAMPLED | {"messages": user(150, 52)}
    for parameters in (stolen, half, few):
        theirs = {
            "kv_transfer_params": parameters,
            "vllm_xargs": {"kv_transfer_params": json.dumps(parameters)},
        }
        assert said(ask(router.url, COMPLETIONS, other | theirs)) == expected
        assert ask(router.url, COMPLETIONS, other | theirs | {"n": 2, "temperature": 1}).status == 200
        assert ask(router.url, CHAT, chat | theirs).status == 200
        assert ask(router.url, "/invocations", other | theirs).status == 200
        assert ask(router.url, "/tokenize", {"model": MODEL, "prompt": "hi"} | theirs).status == 200
    assert all(engine.is_ready() for engine in pair.engines)
    pair.must_be_idle(2 * LEASE)  # what was taken beside the router is freed by its lease alone


# ---- a client that leaves, in each state


def test_a_client_that_leaves_while_prefill_computes(pair, router):
    pair.forget_prefixes()
    counted = Counted(router)
    completed = pair.prefill.completed()
    with contextlib.closing(send(router.url, COMPLETIONS, completion(60, 3500))):
        eventually(lambda: pair.prefill.requests() == 1, "prefill never computed", SLOW)
        assert router.load() == 2
    eventually(lambda: router.load() == 0, "the router goes on")
    pair.must_be_idle()  # an engine hears of it once the step is over that it computes
    assert pair.prefill.completed() == completed
    assert counted.claims() == {}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_leaves_before_decodes_first_byte(pair, router, stream):
    pair.forget_prefixes()
    with (
        pair.decode.frozen(),
        contextlib.closing(send(router.url, COMPLETIONS, completion(61, stream=stream))) as client,
    ):
        eventually(lambda: router.loads() == {pair.decode.url: 1}, "no hand-over", SLOW)
        eventually(lambda: pair.prefill.usage() > 0, "prefill holds nothing")
        client.close()
        eventually(lambda: router.load() == 0, "the router goes on")
        assert pair.prefill.usage() > 0
    pair.must_be_idle()


def test_a_client_that_leaves_in_the_middle_of_a_stream(pair, router):
    pair.forget_prefixes()
    counted = Counted(router)
    body = completion(62, max_tokens=CONTEXT // 2, ignore_eos=True, stream=True)
    with contextlib.closing(send(router.url, COMPLETIONS, body)) as client:
        seen = b""
        while seen.count(b"data: ") < 3:
            seen += client.recv(65536)
    pair.must_be_idle()
    eventually(lambda: router.load() == 0, "the router goes on")
    assert counted.claims() == {"redeemed": 1}


@pytest.mark.parametrize("orphan", ["reject", "collect"])
@pytest.mark.usefixtures("router")
def test_blocks_that_no_decode_engine_was_told_of_are_freed(pair, orphan):
    """Fact 16: the client leaves between both, while the router still connects to a decode worker."""
    slow = SlowPort()
    # Turns begin with the slow one. Its connection must not fail before the client has left.
    flags = ["--pd-orphan", orphan, "--decode-policy", "round_robin", "--health-check-interval-secs", "0"]
    flags += ["--connect-timeout-secs", "60", "--pd-handoff-limit-ms", "60000"]

    try:
        with pair.router(*flags, name="router-pd-slow", decode=[slow.url, pair.decode.url]) as own:
            with contextlib.closing(send(own.url, COMPLETIONS, completion(100))):
                eventually(lambda: own.loads() == {slow.url: 1}, "no hand-over to the slow one", SLOW)
                eventually(lambda: pair.prefill.usage() > 0, "prefill holds nothing")
            begun = time.monotonic()
            pair.must_be_idle()
            # Decode may have been told, and have responded too late for the router.
            eventually(lambda: own.claims() != {}, "the claim did not end", LEASE)
            print(f"freed after {time.monotonic() - begun:.2f} s, {own.claims()}")
            assert own.claims() in ({"collected": 1}, {"expired": 1})
    finally:
        slow.stop()


# ---- failures

REJECTED_BY_DECODE = {
    "max_tokens-beyond-the-context": {"max_tokens": 10 * CONTEXT},
    "min_tokens-above-max_tokens": {"min_tokens": 20, "max_tokens": 10},
    "max_tokens-negative": {"max_tokens": -3},
    "wrong-type-of-stream_options": {"stream": True, "stream_options": 7},
}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("name", REJECTED_BY_DECODE)
def test_what_decode_rejects_is_the_clients_and_frees_prefill(pair, router, name, path):
    body: dict[str, Any] = completion(70) if path == COMPLETIONS else SAMPLED | {"messages": user(200, 71)}
    body |= REJECTED_BY_DECODE[name]
    pair.forget_prefixes()
    routed = ask(router.url, path, body)
    begun = time.monotonic()
    pair.must_be_idle()
    print(f"{name}: {routed.status}, freed after {time.monotonic() - begun:.2f} s")
    assert routed.status == ask(pair.decode.url, path, body).status
    assert routed.status in (200, 400)


class Lost:
    """Requests whose blocks decode cannot have: `lose` is called when prefill has done its part."""

    def __init__(self, pair: Pair, router: PairRouter) -> None:
        self._pair, self._router = pair, router
        self._bodies = [completion(80), completion(81, stream=True)]
        self._expected = [said(ask(pair.decode.url, COMPLETIONS, body)) for body in self._bodies]

    def _handed_over(self) -> bool:
        return self._router.loads() == {self._pair.decode.url: len(self._bodies)}

    def must_be_served(self, lose: Callable[[contextlib.ExitStack], Any]) -> None:
        self._pair.forget_prefixes()
        counted = Counted(self._router)
        with contextlib.ExitStack() as stack:
            with self._pair.decode.frozen():
                asking = [Asking(self._router.url, COMPLETIONS, body) for body in self._bodies]
                eventually(self._handed_over, "decode was not sent the requests", SLOW)
                lose(stack)
            assert [said(one.get()) for one in asking] == self._expected
        eventually(lambda: counted.claims() == {"expired": 2}, f"{counted.claims()}")
        eventually(self._pair.decode.is_idle, "decode holds blocks of what is over", LEASE / 3)

    def must_be_served_by(self, router: PairRouter) -> None:
        self._pair.decode.forget_prefixes()
        assert [said(ask(router.url, COMPLETIONS, body)) for body in self._bodies] == self._expected


@pytest.mark.timeout(1500)
def test_when_decode_cannot_have_the_blocks_it_serves_alone(pair, router):
    """Facts 29 and 30: prefill is killed; its successor, which decode does not know, says nothing for 5 s."""
    lost = Lost(pair, router)
    lost.must_be_served(lambda _: pair.prefill.kill())
    with pair.router("--pd-on-prefill-loss", "local", name="router-pd-local") as local:
        lost.must_be_served_by(local)
    pair.bring_up()
    eventually(
        lambda: router.workers()[pair.prefill.url]["is_healthy"], "nobody noticed that prefill is back", SLOW
    )
    lost.must_be_served(lambda stack: stack.enter_context(pair.prefill.frozen()))
    assert all(engine.is_ready() for engine in pair.engines)
    pair.must_be_idle(2 * LEASE)  # what decode may have seen is freed by the lease alone
    lost.must_be_served_by(router)


def test_metrics_and_access_log_agree(router):
    plans, ends, local = router.labelled("pd_plan_total", "kind"), router.claims(), Counter()
    lines = router.access_log()
    assert Counter(line["pd"] for line in lines) == plans
    local.update(line["pd_local"] for line in lines if "pd_local" in line)
    assert local == router.labelled("pd_local_total", "reason")
    claimed = Counter(line["claim"] for line in lines if "claim" in line)
    claimed["collected"] += claimed.pop("orphaned", 0)
    assert +claimed == ends


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("router")
def test_the_reference_has_lists_of_prompts_wrong_and_loses_its_decode_engine(pair, print_table):
    """Facts 10 and 35, on the other side. The last test, since decode dies of it."""
    wrong = completion(95, prompt=[text_of(200, 95), text_of(60, 96)])
    deadly = completion(97, prompt=["hi there", text_of(200, 97)])
    pair.forget_prefixes()
    expected = said(ask(pair.decode.url, COMPLETIONS, wrong))
    pair.forget_prefixes()
    reference = ReferenceRouter(pair)
    try:
        seen = ask(reference.url, COMPLETIONS, wrong)
        texts = [choice["text"] for choice in seen.json()["choices"]] if seen.status == 200 else []
        right = [choice["text"] for choice in expected["choices"]]
        with contextlib.suppress(OSError, http.client.HTTPException):
            ask(reference.url, COMPLETIONS, deadly)
        with contextlib.suppress(AssertionError):
            eventually(lambda: not pair.decode.is_running(), "", LEASE)
    finally:
        reference.stop()
    print_table += [
        "the reference with lists of prompts, which this router has right",
        f"  long, short: status {seen.status}, " + ("right" if texts == right else "wrong text"),
        f"  short, long: decode {'serves on' if pair.decode.is_running() else 'has ended'}",
    ]
    assert texts != right or not pair.decode.is_running(), "the reference has mended it"
