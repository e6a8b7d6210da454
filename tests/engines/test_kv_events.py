"""What a router knows of vLLM's caches by KV events, against the cached tokens that vLLM reports.

Engines with room for few conversations, so that blocks are evicted all the time. Requests one after the
other: what the router claims must be what the engine then finds. Under load it may be off by what is under
way. And engines that are killed, caches that are emptied, routers that start late.
"""

import contextlib
import json
import random
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engines.conftest import Fleet, skip_without_engines
from tests.engines.processes import BLOCK, MODEL, OPTIONS, Engine, Router, call, seconds_until
from tests.engines.test_cached_tokens import ids, words
from tests.fakes.relay import Relay
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1500)]

BLOCKS = 160  # of an engine's cache: some six conversations
FLAGS = ("--kv-events", "on", "--block-size", str(BLOCK), "--tokenize-timeout-ms", "30000", "--seed", "1")
BLOCKED = 30.0  # seconds
REPLAY = 60.0  # seconds within which a router must know all again


@pytest.fixture(scope="module")
def fleet(pytestconfig: pytest.Config) -> Iterator[Fleet]:
    skip_without_engines(pytestconfig)
    before = dict(OPTIONS)
    OPTIONS.update({"--num-gpu-blocks-override": str(BLOCKS), "--max-model-len": "4096"})
    fleet = Fleet([Engine("engine-events-a", events=True), Engine("engine-events-b", events=True)])
    try:
        yield fleet
    finally:
        OPTIONS.update(before)
        fleet.stop()


def sources(router: Router) -> list[dict[str, Any]]:
    return call(router.url, "GET", "/admin/kv-events").json()["sources"]


def trusts(router: Router) -> list[str]:
    return [source["trust"] for source in sources(router)]


def numbers(router: Router) -> list[int]:
    return [source["next_number"] for source in sources(router)]


def wait_until_heard(router: Router) -> None:
    """Nothing is under way: the numbers stay the same while an engine may publish its last step."""
    last: list[Any] = [None, 0.0]

    def quiet() -> bool:
        now = numbers(router)
        if now != last[0] or router.load() != 0:
            last[:] = [now, time.monotonic()]
        return time.monotonic() - last[1] > 0.25

    eventually(quiet, "the engines never stop to publish", 30)


def ask(router: Router, path: str, body: dict[str, Any]) -> tuple[int, int, int, str]:
    """Prompt tokens, those that the router claimed, those that were cached, and the engine."""
    common = {"model": MODEL, "max_tokens": BLOCK + 8, "temperature": 0, "ignore_eos": True}
    response = call(router.url, "POST", path, common | body)
    assert response.status == 200, response.body
    said = response.json()
    details = said["usage"]["prompt_tokens_details"] or {}
    status = response.fields["x-vllm-router-cache-status"]
    matched, _, unit = re.fullmatch(r"(\d+)/(\d+) (.+)", status).groups()
    assert unit == "blocks"
    if path.endswith("chat/completions"):
        body["messages"].append({"role": "assistant", "content": said["choices"][0]["message"]["content"]})
    return (
        said["usage"]["prompt_tokens"],
        int(matched) * BLOCK,
        details.get("cached_tokens", 0),
        response.fields["x-vllm-router-worker"],
    )


def conversations(users: int, turns: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Turns of users in random order: half of them chats, half of them token ids, with shared prefixes."""
    draw = random.Random(seed)
    chats: dict[int, dict[str, Any]] = {}
    for turn, user in enumerate(draw.choices(range(users), k=users * turns)):
        if user % 2:
            tokens = chats.setdefault(user, {"prompt": ids(200, seed, user % 3)})["prompt"]
            tokens += ids(40, seed, user, turn)
            yield "/v1/completions", {"prompt": list(tokens)}
        else:
            first = [{"role": "system", "content": words(200, seed, user % 3)}]
            body = chats.setdefault(user, {"messages": first})
            body["messages"].append({"role": "user", "content": words(30, seed, user, turn)})
            yield "/v1/chat/completions", body


@pytest.fixture
def router(fleet: Fleet) -> Iterator[Router]:
    with fleet.router("auto", *FLAGS) as router:
        eventually(lambda: trusts(router) == ["exact", "exact"], "never exact", REPLAY)
        yield router


def test_an_idle_engine_has_what_the_router_claims(router, print_table):
    rows = []
    for path, body in conversations(users=24, turns=6, seed=1):
        rows.append(ask(router, path, body))
        wait_until_heard(router)
    exact = sum(claimed == cached for _, claimed, cached, _ in rows)
    prompt = sum(row[0] for row in rows)
    off = sum(abs(claimed - cached) for _, claimed, cached, _ in rows)
    removed = sum(source["removed_blocks"] for source in sources(router))
    print_table.append(
        f"kv events, one request at a time: {exact} of {len(rows)} claims equal the cached tokens; {prompt} "
        f"prompt tokens, {sum(row[2] for row in rows)} cached, {off} off; {removed} blocks evicted meanwhile"
    )
    print_table += [f"  claimed {row[1]}, cached {row[2]} of {row[0]}" for row in rows if row[1] != row[2]]
    assert removed > BLOCKS  # the caches turned over
    assert trusts(router) == ["exact", "exact"]
    assert exact >= 0.99 * len(rows)


def test_under_load_claims_are_off_by_what_is_under_way(router, print_table):
    # As they are now: later turns change the conversation.
    requests = [(path, json.loads(json.dumps(body))) for path, body in conversations(48, 8, seed=2)]
    with ThreadPoolExecutor(6) as pool:
        rows = list(pool.map(lambda request: ask(router, *request), requests))
    prompt = sum(row[0] for row in rows)
    difference = sum(row[1] - row[2] for row in rows)
    off = sum(abs(row[1] - row[2]) for row in rows)
    print_table.append(
        f"kv events, 6 requests at once: {len(rows)} requests, {prompt} prompt tokens, "
        f"{sum(row[2] for row in rows)} cached, claims {difference:+d} off in sum "
        f"({difference / prompt:+.2%}), {off / prompt:.2%} request by request"
    )
    assert abs(difference) < 0.01 * prompt
    wait_until_heard(router)
    assert trusts(router) == ["exact", "exact"]


def test_receipts_have_the_engines_numbers(router, print_table):
    def told(request: tuple[str, dict[str, Any]]) -> tuple[str, tuple[int, int, str]]:
        path, body = request
        response = call(router.url, "POST", path, {"model": MODEL, "max_tokens": 4, "temperature": 0} | body)
        assert response.status == 200, response.body
        usage = response.json()["usage"]
        cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0)
        worker = response.fields["x-vllm-router-worker"]
        return response.fields["x-request-id"], (usage["prompt_tokens"], cached, worker)

    requests = [(path, json.loads(json.dumps(body))) for path, body in conversations(63, 8, seed=5)]
    with ThreadPoolExecutor(6) as pool:
        engines = dict(pool.map(told, requests))
    receipts = call(router.url, "GET", "/admin/receipts?last=1000").json()["receipts"]
    assert {
        each["request_id"]: (each["prompt_tokens"], each["reported_cached_tokens"], each["worker"])
        for each in receipts
    } == engines
    predicted = sum(each["predicted_cached_tokens"] for each in receipts)
    reported = sum(each["reported_cached_tokens"] for each in receipts)
    print_table.append(
        f"receipts, 6 requests at once: {len(receipts)} requests, {reported} cached, {predicted} predicted "
        f"({predicted / reported - 1:+.2%})"
    )
    assert len(receipts) == 504
    assert predicted == pytest.approx(reported, rel=0.02)


def known(router: Router) -> list[int]:
    return [source["gpu_blocks"] for source in sources(router)]


def test_a_router_that_starts_late_replays_all(fleet, router, print_table):
    for path, body in conversations(users=6, turns=3, seed=3):
        ask(router, path, body)
    wait_until_heard(router)
    with fleet.router("auto", *FLAGS) as late:
        seconds = seconds_until(lambda: trusts(late) == ["exact", "exact"], REPLAY, "never exact")
        wait_until_heard(late)
        print_table.append(
            f"kv events, a router started late: exact after {seconds:.1f} s, {known(late)} blocks"
        )
        assert known(late) == known(router)
        assert numbers(late) == numbers(router)


def test_a_killed_engine_is_known_afresh(fleet, router, print_table):
    for path, body in conversations(users=6, turns=3, seed=4):
        ask(router, path, body)
    wait_until_heard(router)
    victim = fleet.engines[0]
    victim.kill()
    victim.start()
    victim.wait_until_ready()

    def afresh() -> bool:
        (source,) = [source for source in sources(router) if source["worker"] == victim.url]
        return source["trust"] == "exact" and source["gpu_blocks"] == 0 and source["connected"]

    seconds = seconds_until(afresh, REPLAY, f"never known afresh: {sources(router)}")
    print_table.append(f"kv events, an engine killed: known afresh {seconds:.1f} s after it serves again")
    eventually(router.is_ready, "the engine is never healthy again", 60)
    rows = []
    for path, body in conversations(users=6, turns=3, seed=5):
        rows.append(ask(router, path, body))
        wait_until_heard(router)
    assert sum(row[1] == row[2] for row in rows) >= 0.99 * len(rows)


def test_a_cache_that_is_emptied_while_idle_is_empty_at_once(router):
    body = {"prompt": ids(300, 6)}
    ask(router, "/v1/completions", body)
    wait_until_heard(router)
    assert ask(router, "/v1/completions", body)[1] > 0
    wait_until_heard(router)
    assert call(router.url, "POST", "/reset_prefix_cache").status == 200
    # The engine itself tells of it only with its next step.
    _, claimed, cached, _ = ask(router, "/v1/completions", body)
    assert (claimed, cached) == (0, 0)
    wait_until_heard(router)
    _, claimed, cached, _ = ask(router, "/v1/completions", body)
    assert claimed == cached > 0


def test_events_that_are_held_up_are_made_up_for(fleet, print_table):
    with contextlib.ExitStack() as stack:
        relays = [Relay(SimpleNamespace(port=engine.events_port)) for engine in fleet.engines]
        for relay in relays:
            stack.callback(relay.stop)
        named: list[str] = []
        for engine, relay in zip(fleet.engines, relays, strict=True):
            named += ["--kv-event-source", f"{engine.url}=tcp://127.0.0.1:{relay.port}"]
            named += ["--kv-event-replay-source", f"{engine.url}=tcp://127.0.0.1:{engine.replay_port}"]
        router = stack.enter_context(fleet.router("auto", *FLAGS, *named))
        eventually(lambda: trusts(router) == ["exact", "exact"], "never exact", REPLAY)
        for relay in relays:
            relay.pause()
        before = numbers(router)
        end = time.monotonic() + BLOCKED
        requests = 0
        for path, body in conversations(users=12, turns=100, seed=7):
            ask(router, path, body)
            requests += 1
            if time.monotonic() > end:
                break
        meanwhile = trusts(router)
        for relay in relays:
            relay.resume()
        seconds = seconds_until(lambda: trusts(router) == ["exact", "exact"], REPLAY, "never exact again")
        wait_until_heard(router)
        rows = []
        for path, body in conversations(users=6, turns=3, seed=8):
            rows.append(ask(router, path, body))
            wait_until_heard(router)
        exact = sum(row[1] == row[2] for row in rows)
        batches = sum(numbers(router)) - sum(before)
        lost = sum(source["lost_batches"] for source in sources(router))
        print_table.append(
            f"kv events, held up for {BLOCKED:g} s and {requests} requests: {meanwhile} meanwhile, exact "
            f"{seconds:.1f} s later, {batches} batches, {lost} lost; {exact} of {len(rows)} claims are equal"
        )
        assert lost == 0
        assert exact >= 0.99 * len(rows)
