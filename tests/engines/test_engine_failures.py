"""An engine that dies under load costs its running streams, and no other request.

After SIGKILL that is all. After SIGTERM vLLM 0.32 breaks connections off or ends its requests itself. One
that is frozen costs time alone.
"""

import contextlib
import http.client
import json
import threading
import urllib.parse
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from tests.engines.processes import MODEL, SLOTS, Engine, Router, seconds_until
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1500)]

WHOLE = 6  # responses that do not stream
STREAMS = 2 * SLOTS + 4  # so that some wait in the engines' queues
TOKENS = 1500  # of each of these, which take even a fast engine seconds
SHORT_CLIENTS = 4  # that send one short request after the other
PATIENCE = 300.0  # for all to end, on a slow machine


@dataclass(eq=False)
class Request:
    """One request and what became of it."""

    kind: str  # whole, stream, short
    tokens: int
    status: int = 0
    worker: str = ""
    attempts: int = 0
    events: int = 0
    received: int = 0  # tokens, as `usage` in the response says
    finish: str = ""  # finish_reason, which is "abort" where the engine gave up the request
    error: str = ""
    has_ended: bool = False

    @property
    def is_complete(self) -> bool:
        return self.has_ended and self.status == 200 and not self.error and self.received == self.tokens

    @property
    def outcome(self) -> str:
        if self.is_complete:
            return "complete"
        return self.error or f"status {self.status}, finish_reason {self.finish or 'missing'}"

    def send(self, router: Router, number: int) -> None:
        try:
            self._send(router.url, number)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.error = repr(error)
        finally:
            self.has_ended = True

    def _send(self, url: str, number: int) -> None:
        address = urllib.parse.urlsplit(url)
        body: dict[str, Any] = {
            "model": MODEL,
            "prompt": f"{self.kind} request {number} wants {self.tokens} tokens.",
            "max_tokens": self.tokens,
            "ignore_eos": True,
        }
        if self.kind == "stream":
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(
                "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
            )
            response = connection.getresponse()
            self.status = response.status
            self.worker = response.headers.get("x-vllm-router-worker", "")
            self.attempts = int(response.headers.get("x-vllm-router-attempts", "0"))
            if response.status != 200:
                self.error = response.read().decode()
            elif self.kind == "stream":
                self._read_events(response)
            else:
                said = json.loads(response.read())
                self.received = said["usage"]["completion_tokens"]
                self.finish = said["choices"][0]["finish_reason"]

    def _read_events(self, response: http.client.HTTPResponse) -> None:
        for line in response:
            if not line.startswith(b"data: "):
                continue
            self.events += 1
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                return
            event = json.loads(data)
            if "error" in event:
                self.error = "an event with an error"
            if event.get("usage"):
                self.received = event["usage"]["completion_tokens"]
            for choice in event.get("choices", []):
                self.finish = choice["finish_reason"] or self.finish
        self.error = self.error or "broken off"


class Load:
    """Clients in threads. Each request is kept with its outcome."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.requests: list[Request] = []
        self._threads: list[threading.Thread] = []
        self._no_more = threading.Event()

    def begin(self, kind: str, count: int) -> list[Request]:
        """Requests that all begin now."""
        begun = [Request(kind, TOKENS) for _ in range(count)]
        self.requests += begun
        for number, request in enumerate(begun):
            self._start(request.send, self.router, number)
        return begun

    def begin_short(self) -> None:
        """Clients that go on until `join`."""
        for _ in range(SHORT_CLIENTS):
            self._start(self._send_short)

    def _start(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send_short(self) -> None:
        while not self._no_more.is_set():
            request = Request("short", 2)
            self.requests.append(request)
            request.send(self.router, len(self.requests))

    def short_ended(self) -> int:
        return sum(request.kind == "short" and request.has_ended for request in self.requests)

    def join(self) -> None:
        self._no_more.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads), "a request never ended"


def end_under_load(router: Router, engines: list[Engine], victim: Engine, end: Any) -> list[Request]:
    """Ends an engine while all are full, and says what became of every request."""
    load = Load(router)
    load.begin("whole", WHOLE)
    eventually(lambda: router.load() == WHOLE, "a request was not sent")
    streams = load.begin("stream", STREAMS)

    def engines_are_full() -> bool:
        assert not any(request.has_ended for request in load.requests), "too few tokens for this machine"
        begun = sum(request.events > 0 for request in streams)
        return begun >= SLOTS and all(engine.metric("vllm:num_requests_waiting") > 0 for engine in engines)

    eventually(engines_are_full, "the engines were never full")
    end()
    load.begin_short()
    eventually(lambda: not router.workers()[victim.url]["is_healthy"], "nobody noticed")
    after = load.short_ended() + 20
    eventually(lambda: load.short_ended() >= after, "the other engine does not serve", PATIENCE)
    load.join()
    return load.requests


def describe(requests: list[Request], what: str) -> list[str]:
    counts = Counter((request.kind, request.attempts, request.outcome) for request in requests)
    lost = sum(not request.is_complete for request in requests)
    return [
        f"{what}: {lost} of {len(requests)} requests did not end well",
        *(
            f"{count:6} {kind:8}{'' if attempts == 1 else 'sent again, '}{outcome}"
            for (kind, attempts, outcome), count in sorted(counts.items())
        ),
    ]


def lost_without_need(requests: list[Request], victim: Engine) -> list[Request]:
    """Requests that failed, but for streams that had begun on the engine that died."""
    return [
        request
        for request in requests
        if not request.is_complete
        and not (request.kind == "stream" and request.events > 0 and request.worker == victim.url)
    ]


def test_a_killed_engine_costs_its_running_streams_alone_and_serves_again_when_it_is_back(fleet, print_table):
    victim = fleet.engines[0]
    with fleet.router("least_load") as router:
        requests = end_under_load(router, fleet.engines, victim, victim.kill)
        print_table += describe(requests, "SIGKILL of an engine under load")
        assert lost_without_need(requests, victim) == []
        assert sum(not request.is_complete for request in requests) <= SLOTS
        assert any(request.attempts > 1 for request in requests), "no request had to be saved"
        assert router.load() == 0
        fleet.bring_up()
        eventually(
            lambda: router.workers()[victim.url]["is_healthy"], "the engine is back and nobody noticed"
        )
        before = victim.metric("vllm:request_success_total")
        load = Load(router)
        load.begin("whole", 4)
        load.join()
        assert all(request.is_complete for request in load.requests)
        assert victim.metric("vllm:request_success_total") > before


def test_an_engine_that_is_told_to_end_costs_what_it_gives_up_and_its_running_streams_alone(
    fleet, print_table
):
    victim = fleet.engines[1]
    with fleet.router("least_load") as router:
        requests = end_under_load(router, fleet.engines, victim, victim.terminate)
        print_table += describe(requests, "SIGTERM of an engine under load")
        # vLLM may itself end what it has, with status 200: what runs with "finish_reason": "abort", a stream
        # that waits with no token at all. To the router these are responses like any other.
        given_up = [
            request
            for request in requests
            if request.worker == victim.url and not request.is_complete and not request.error
        ]
        others = [request for request in requests if request not in given_up]
        assert lost_without_need(others, victim) == []
        assert router.load() == 0


def test_a_frozen_engine_is_left_out_while_its_http_server_says_that_all_is_well(fleet, print_table):
    """As GPUs hang: /health is 200 all the time, and no request gets a first byte."""
    victim = fleet.engines[0]
    with fleet.router("least_load") as router:

        def in_doubt() -> bool:
            return router.workers()[victim.url].get("in_doubt", False)

        load = Load(router)
        load.begin_short()
        eventually(lambda: load.short_ended() >= 100, "the engines do not serve", PATIENCE)
        victim.freeze()
        try:
            took = seconds_until(in_doubt, PATIENCE, "nobody noticed")
            assert victim.is_ready()
            waited = sum(not request.has_ended for request in load.requests)
            after = load.short_ended() + 50
            eventually(lambda: load.short_ended() >= after, "the other engine does not serve", PATIENCE)
            assert in_doubt()
        finally:
            victim.thaw()
        back = seconds_until(lambda: not in_doubt(), PATIENCE, "it computes again and nobody noticed")
        before = victim.metric("vllm:request_success_total")
        eventually(lambda: victim.metric("vllm:request_success_total") > before, "it gets nothing", PATIENCE)
        load.join()
        print_table += [
            *describe(load.requests, "SIGSTOP of an engine that computes, under load"),
            f"in doubt after {took:.1f} s, with {waited} requests under way; back {back:.1f} s after SIGCONT",
        ]
        assert all(request.is_complete for request in load.requests)
        assert any(request.attempts > 1 for request in load.requests), "no request had to be saved"
        assert router.load() == 0
