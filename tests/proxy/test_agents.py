"""Recorded coding agents through a router: sessions stay on a worker, and what was sent before is found."""

import functools
import json

import pytest
import websockets.sync.client

from tests.fakes.agent_replay import BLOCK_BYTES, allowed, homes_of_sessions, replay
from tests.fakes.recorded_agents import AGENTS, has_prompt, recorded, session_of
from vllm_router import Router
from vllm_router import _core_testing as testing
from vllm_router.testing import SimulatedWorker

POLICIES = ("auto", "cache_aware", "consistent_hash", "prefix_aware")
# cache_aware by default spreads starts of conversations, and finds less of them on purpose.
MATCHING = {"auto": {}, "cache_aware": {"spread_new_conversations": False, "cache_threshold": 0.0}}

MOVES = {
    ("aider_0.86.2", "cache_aware"): "a rebuilt prompt is the start of a conversation, and starts spread",
    ("claude_code_2.1.197", "cache_aware"): (
        "a resumed session has another git status before its history, of which no cache has anything: it "
        "begins as all sessions do, with the tools, and is the start of a conversation; starts spread"
    ),
}


@functools.cache
def replayed(agent, policy):
    return replay(recorded(agent), policy)


def case(agent, policy):
    reason = MOVES.get((agent, policy))
    marks = [] if reason is None else [pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)]
    return pytest.param(agent, policy, marks=marks)


CASES = [case(agent, policy) for agent in AGENTS for policy in POLICIES]


@pytest.mark.parametrize("agent", AGENTS)
def test_the_recorded_bodies_are_whole(agent):
    requests = recorded(agent)
    assert [len(request.body or b"") for request in requests] == [request.wire_bytes for request in requests]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("agent", AGENTS)
def test_every_request_is_served(agent, policy):
    outcomes = replayed(agent, policy).outcomes
    assert {outcome.status for outcome in outcomes} == {200}
    for outcome in outcomes:
        assert (outcome.worker is None) == (outcome.request.method == "HEAD")


@pytest.mark.parametrize(("agent", "policy"), CASES)
def test_a_session_stays_on_one_worker(agent, policy):
    if policy == "consistent_hash":
        visited = homes_of_sessions(recorded(agent), policy)  # ports would make another ring in each run
    else:
        visited = replayed(agent, policy).workers_of_sessions()
    assert [len(workers) for workers in visited] == [1] * len(visited)


@pytest.mark.parametrize("agent", AGENTS)
def test_all_turns_of_a_session_have_one_opening(agent):
    """Claude Code writes another `git status` when it resumes, and a compacted conversation begins anew."""
    openings = {}
    for request in filter(has_prompt, recorded(agent)):
        if request.method == "POST" and request.scenario != "compact":
            new = agent.startswith("claude_code") and request.scenario == "resume"
            opening = testing.routing_text(request.body, request.path.partition("?")[0], opening=True)
            openings.setdefault((session_of(request), new), set()).add(opening["text"])
    assert {len(values) for values in openings.values()} == {1}


@pytest.mark.parametrize("policy", MATCHING)
@pytest.mark.parametrize("agent", AGENTS)
def test_what_was_sent_before_is_found(agent, policy):
    options = MATCHING[policy]
    done = replay(recorded(agent), policy, **options) if options else replayed(agent, policy)
    at_most = allowed(recorded(agent), BLOCK_BYTES.get(policy, 1))
    assert at_most > 0.4
    assert done.share_matched == pytest.approx(at_most, abs=0.01)
    # The workers print tools first, so that some prompts share less.
    assert done.share_cached > at_most - 0.07


@pytest.mark.parametrize("policy", MATCHING)
def test_counting_tokens_is_no_prompt(policy):
    outcomes = replayed("claude_code_2.1.197", policy).outcomes
    counted = [outcome for outcome in outcomes if outcome.request.path.endswith("count_tokens?beta=true")]
    assert len(counted) == 18
    assert {(outcome.matched, outcome.total) for outcome in counted} == {(0, 0)}


@pytest.fixture
def worker():
    with SimulatedWorker(engine="instant", model="*", tool_script='[{"text": "Done."}]') as worker:
        yield worker


def test_codex_continues_its_responses_over_a_websocket(worker):
    upgrade, *messages = recorded("codex_0.171.0", "websocket")
    not_sent = ("host", "connection", "upgrade", "sec-websocket-")
    fields = [(name, value) for name, value in upgrade.headers if not name.lower().startswith(not_sent)]
    previous, usage = None, []
    with Router("auto", [worker.url]).serve(host="127.0.0.1", port=0, log_level="error") as server:
        url = f"ws://127.0.0.1:{server.port}{upgrade.path}"
        with websockets.sync.client.connect(url, additional_headers=fields, proxy=None) as socket:
            for message in messages:
                body = message.json
                if "previous_response_id" in body:
                    body["previous_response_id"] = previous
                socket.send(json.dumps(body))
                event = {"type": None}
                while event["type"] != "response.completed":
                    event = json.loads(socket.recv(30))
                    assert event["type"] != "error", event
                previous = event["response"]["id"]
                usage.append(event["response"]["usage"])
    cached = [used["input_tokens_details"]["cached_tokens"] for used in usage]
    tokens = [used["input_tokens"] for used in usage]
    assert tokens == sorted(tokens)  # each has all that was before
    assert cached[0] == 0
    # All of the turn before but its last, incomplete block, and what the template says behind it.
    assert all(before - found <= 32 for before, found in zip(tokens, cached[1:], strict=False))
