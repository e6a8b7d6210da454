"""Recorded agents through a router to simulated workers: where each request went, how much of it was found.

    done = replay(recorded("codex_0.171.0"), "auto", workers=3)
    done.outcomes[3].worker, done.share_matched, done.share_cached
    allowed(recorded("codex_0.171.0"), block_bytes=1)     # what no router could exceed

The workers respond at once, so nothing here is a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
from collections.abc import Iterable, Sequence

from tests.fakes.recorded_agents import Recorded, has_prompt, session_of
from tests.fakes.wire import eventually
from tests.models.routing_text import routing_text
from vllm_router import Router
from vllm_router.testing import SimulatedWorker

# The recordings have the next turn. Without a script, responses have the length that agents allow.
SCRIPT = json.dumps([{"text": "Done."}])

# The router's unit of a match.
BLOCK_BYTES = {"auto": 64, "vllm_cache_aware": 64}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one request."""

    request: Recorded
    status: int
    worker: str | None
    """Its URL; None: the router responded itself."""
    matched: int
    """What the policy took the worker to hold, in its unit."""
    total: int


@dataclasses.dataclass(frozen=True)
class Replay:
    """Of one agent, with one policy."""

    outcomes: list[Outcome]
    share_cached: float
    """Of all prompts' tokens, as the workers counted them."""

    @property
    def share_matched(self) -> float | None:
        """Of all prompts together; None: the policy matches none."""
        total = sum(outcome.total for outcome in self.outcomes)
        return sum(outcome.matched for outcome in self.outcomes) / total if total else None

    def workers_of_sessions(self) -> list[set[str | None]]:
        """Which workers each session's prompts went to, without those that share nothing with any before.

        Codex compacts a conversation by a request without tools: where tools come first, no worker holds any
        of it.
        """
        known = [outcome for outcome in self.outcomes if has_prompt(outcome.request)]
        shared = _shared([outcome.request for outcome in known], 64)
        seen: set[tuple[str, ...]] = set()
        kept = []
        for outcome, (found, _) in zip(known, shared, strict=True):
            if found or session_of(outcome.request) not in seen:
                kept.append((outcome.request, outcome.worker))
            seen.add(session_of(outcome.request))
        return _by_session(kept)


def replay(requests: Sequence[Recorded], policy: str, workers: int = 3, **options: object) -> Replay:
    """Sends them one after the other, on a connection for each recorded one. A WebSocket's are left out."""
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(SimulatedWorker(engine="instant", model="*", tool_script=SCRIPT))
            for _ in range(workers)
        ]
        router = Router(policy, [worker.url for worker in started], seed=1, **options)
        quiet = {"health_check_interval_secs": 0, "decision_headers": True, "log_level": "error"}
        running = stack.enter_context(router.serve(host="127.0.0.1", port=0, **quiet))
        connections: dict[tuple[str, int | None], http.client.HTTPConnection] = {}
        outcomes = []
        for request in requests:
            if request.method == "WS" or request.header("upgrade"):
                continue
            place = request.scenario, request.connection
            if place not in connections:
                connections[place] = http.client.HTTPConnection("127.0.0.1", running.port)
                stack.callback(connections[place].close)
            outcomes.append(_send(connections[place], request))
            # A load returns behind the response's last byte, and would count in the next choice.
            eventually(lambda: not any(worker.load for worker in router.workers))
        stats = [worker.stats() for worker in started]
    cached, tokens = (sum(each[name] for each in stats) for name in ("cached_tokens", "prompt_tokens"))
    return Replay(outcomes, cached / max(1, tokens))


def homes_of_sessions(requests: Sequence[Recorded], policy: str) -> list[set[str | None]]:
    """The same without a server, for policies that hash: eight workers have the same URLs in every run."""
    router = Router(policy, [f"http://worker-{number}:8000" for number in range(8)])
    chosen = []
    for request in filter(has_prompt, requests):
        with router.select(request.body, headers=request.headers, path=request.path) as ticket:
            chosen.append((request, ticket.worker_url))
    return _by_session(chosen)


def _by_session(chosen: Iterable[tuple[Recorded, str | None]]) -> list[set[str | None]]:
    sessions: dict[tuple[str, ...], set[str | None]] = {}
    for request, worker in chosen:
        if has_prompt(request):
            sessions.setdefault(session_of(request), set()).add(worker)
    return list(sessions.values())


def _send(connection: http.client.HTTPConnection, request: Recorded) -> Outcome:
    fields = {name: value for name, value in request.headers if name.lower() != "host"}
    connection.request(request.method, request.path, request.body, fields)
    response = connection.getresponse()
    response.read()
    matched, _, total = response.getheader("x-vllm-router-cache-status", "0/0 ").split()[0].partition("/")
    worker = response.getheader("x-vllm-router-worker")
    return Outcome(request, response.status, worker, int(matched), int(total))


def allowed(requests: Sequence[Recorded], block_bytes: int) -> float:
    """The share of all prompts' blocks that an earlier prompt begins with: what can be matched at most."""
    shared = _shared(list(filter(has_prompt, requests)), block_bytes)
    return sum(found for found, _ in shared) / sum(total for _, total in shared)


def _shared(requests: Sequence[Recorded], block_bytes: int) -> list[tuple[int, int]]:
    """Of each prompt, the blocks that an earlier prompt begins with, and all of its blocks."""
    texts: list[bytes] = []
    shared = []
    for request in requests:
        # Simulated workers print tools first, which the router learns.
        text = routing_text(request.json, request.path.partition("?")[0], tools_first=True)
        assert isinstance(text, bytes)
        found = max((common(text, other) for other in texts), default=0) // block_bytes
        shared.append((found, len(text) // block_bytes))
        texts.append(text)
    return shared


def common(one: bytes, other: bytes) -> int:
    """The length of their common prefix."""
    shortest, longest = 0, min(len(one), len(other))
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        if one[:middle] == other[:middle]:
            shortest = middle
        else:
            longest = middle - 1
    return shortest
