"""Pairs are made of workers whose KV blocks fit: `kv_group` of prefill and decode workers."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fakes.harness import Client, Harness, RunningRouter
from tests.fakes.pd import PARAMETERS, ask, prefill_response
from tests.fakes.wire import Message, eventually, request, response
from tests.fakes.worker import FakeWorker


def add(client: Client, worker: FakeWorker, stage: str, group: str, **more: Any) -> Message:
    told = {"url": worker.url, "worker_type": stage, **more} | ({"kv_group": group} if group else {})
    return client.ask("POST", "/workers", body=json.dumps(told).encode())


def serving(harness: Harness, serve: Callable[[Any, dict[str, Any]], object]) -> FakeWorker:
    """A worker whose health checks pass; `serve` gets the others with their bodies."""

    def respond(connection: Any, message: Message) -> None:
        if message.body:
            serve(connection, json.loads(message.body))
        else:
            connection.send(response(200, b"{}"))

    return harness.worker(respond)


@dataclass
class Groups:
    """A router before workers of groups; each prefill worker names its group as its engine."""

    harness: Harness
    options: dict[str, Any] = field(default_factory=dict)
    routing: dict[str, Any] = field(default_factory=dict)
    fetched: list[tuple[str, str]] = field(default_factory=list)  # group of the blocks, of who fetched them
    alone: list[str] = field(default_factory=list)  # of decode workers that were told of no blocks

    def __post_init__(self) -> None:
        self.router: RunningRouter = self.harness.router(
            routing={"vllm_pd_disaggregation": True, **self.routing},
            **({"retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 20} | self.options),
        )
        self.client = self.harness.client(self.router)

    def prefill(self, group: str) -> FakeWorker:
        body = prefill_response({**PARAMETERS, "remote_engine_id": f"of {group}"})
        worker = serving(self.harness, lambda connection, _: connection.send(response(200, body)))
        assert add(self.client, worker, "prefill", group).status == 200
        return worker

    def decode(self, group: str, status: int = 200) -> FakeWorker:
        def serve(connection: Any, body: dict[str, Any]) -> None:
            parameters = body.get("kv_transfer_params")
            if parameters is None:
                self.alone.append(group)
            else:
                self.fetched.append((parameters["remote_engine_id"][3:], group))
            connection.send(response(status, b"{}"))

        worker = serving(self.harness, serve)
        assert add(self.client, worker, "decode", group).status == 200
        return worker

    def row(self, worker: FakeWorker) -> dict[str, Any]:
        listed = json.loads(self.client.ask("GET", "/workers").body)["workers"]
        return next(row for row in listed if row["url"] == worker.url)


@pytest.fixture
def groups(harness: Harness) -> Groups:
    return Groups(harness)


def test_blocks_go_only_to_workers_of_their_group(groups: Groups) -> None:
    for group in ("a", "b", "a"):
        groups.prefill(group)
    for group in ("b", "a", "b"):
        groups.decode(group)
    for _ in range(30):
        assert ask(groups.client).status == 200
    assert len(groups.fetched) == 30
    assert {*groups.fetched} == {("a", "a"), ("b", "b")}


def test_a_worker_without_a_group_fits_all(groups: Groups) -> None:
    for group in ("a", ""):
        groups.prefill(group)
    for group in ("", "a", "b"):
        groups.decode(group)
    for _ in range(30):
        assert ask(groups.client).status == 200
    assert {*groups.fetched} <= {("a", ""), ("a", "a"), ("", ""), ("", "a"), ("", "b")}
    assert {blocks for blocks, _ in groups.fetched} == {"a", ""}
    assert {fetcher for _, fetcher in groups.fetched} == {"", "a", "b"}


def test_prefill_without_a_partner_gets_no_requests_and_says_so(groups: Groups) -> None:
    lonely = groups.prefill("b")
    groups.prefill("a")
    assert "not_chosen" not in groups.row(lonely), "as long as there is no decode worker at all"
    groups.decode("a")
    for _ in range(4):
        assert ask(groups.client).status == 200
    assert lonely.posts == []
    row = groups.row(lonely)
    assert (row["kv_group"], row["is_healthy"]) == ("b", True)
    assert row["not_chosen"] == "no decode worker of its kv_group is in rotation"
    groups.decode("b")
    assert "not_chosen" not in groups.row(lonely)
    for _ in range(4):
        assert ask(groups.client).status == 200
    assert {*groups.fetched} == {("a", "a"), ("b", "b")}


def test_without_any_pair_the_request_is_503_at_once(groups: Groups) -> None:
    groups.prefill("a")
    groups.decode("b")
    refused = ask(groups.client)
    assert refused.status == 503
    assert b"No workers available" in refused.body
    assert (groups.fetched, groups.alone) == ([], [])


def test_what_fails_in_one_group_is_served_by_the_other(harness: Harness) -> None:
    groups = Groups(harness, {"disable_retries": False})
    groups.prefill("a")
    groups.decode("a", status=503)
    groups.prefill("b")
    groups.decode("b")
    for _ in range(6):
        assert ask(groups.client).status == 200
    assert groups.fetched.count(("b", "b")) == 6
    assert {*groups.fetched} == {("a", "a"), ("b", "b")}


def test_an_open_breaker_of_the_only_partner_takes_requests_to_the_other_group(harness: Harness) -> None:
    breaker = {"disable_circuit_breaker": False, "cb_failure_threshold": 1, "cb_timeout_duration_secs": 600}
    groups = Groups(harness, {"disable_retries": True, **breaker})
    groups.prefill("a")
    broken = serving(harness, lambda connection, _: connection.reset())
    assert add(groups.client, broken, "decode", "a").status == 200
    groups.prefill("b")
    groups.decode("b")
    statuses = [ask(groups.client).status for _ in range(8)]
    assert sorted(statuses) == [200] * 7 + [502]
    assert len(broken.posts) == 1
    assert {*groups.fetched} == {("b", "b")}


@pytest.mark.parametrize("has_other_pair", [False, True])
def test_a_partner_that_leaves_while_prefill_computes_is_replaced_by_another_pair_only(
    harness: Harness, has_other_pair: bool
) -> None:
    groups = Groups(harness, {"disable_retries": False})
    gone, other = groups.decode("a"), groups.decode("b")
    body = prefill_response({**PARAMETERS, "remote_engine_id": "of a"})

    def respond_late(connection: Any, _: dict[str, Any]) -> None:
        admin = groups.harness.client(groups.router)
        assert admin.ask("POST", f"/remove_worker?url={gone.url}").status == 200
        connection.send(response(200, body))

    prefill = serving(harness, respond_late)
    assert add(groups.client, prefill, "prefill", "a").status == 200
    if has_other_pair:
        groups.prefill("b")
    assert ask(groups.client).status == (200 if has_other_pair else 503)
    assert groups.fetched == ([("b", "b")] if has_other_pair else [])
    freeing = [one for one in other.posts if b'"max_tokens":-3' in one.body]
    assert (gone.posts, groups.alone, freeing) == ([], [], [])


@pytest.mark.parametrize("retries", [False, True])
def test_a_partner_that_cannot_be_reached_is_replaced_by_another_pair(
    harness: Harness, retries: bool
) -> None:
    groups = Groups(harness, {"disable_retries": not retries})
    groups.prefill("a")
    unreached = groups.decode("a")
    groups.prefill("b")
    groups.decode("b")
    unreached.stop_listening()
    statuses = [ask(groups.client).status for _ in range(6)]
    assert statuses.count(200) == (6 if retries else 3)
    assert {*groups.fetched} == {("b", "b")}


def test_one_that_failed_the_request_is_not_asked_again_while_another_group_is_untried(
    harness: Harness,
) -> None:
    groups = Groups(harness, {"disable_retries": False, "retry_max_retries": 5})
    for _ in range(2):
        groups.prefill("a")
    failing = groups.decode("a", status=503)
    groups.prefill("b")
    groups.decode("b")
    for number in range(1, 5):
        assert ask(groups.client).status == 200
        assert len(failing.posts) <= number


def test_a_request_waits_for_a_full_group_rather_than_for_a_broken_one(harness: Harness) -> None:
    breaker = {"disable_circuit_breaker": False, "cb_failure_threshold": 1, "cb_timeout_duration_secs": 600}
    groups = Groups(harness, {"disable_retries": True, **breaker}, routing={"max_worker_requests": 1})
    groups.prefill("a")
    broken = serving(harness, lambda connection, _: connection.reset())
    assert add(groups.client, broken, "decode", "a").status == 200
    assert ask(groups.client).status == 502
    for _ in range(2):
        groups.prefill("b")
    gate = threading.Event()

    def serve(connection: Any, _: dict[str, Any]) -> None:
        assert gate.wait(30)
        connection.send(response(200, b"{}"))

    slow = serving(harness, serve)
    assert add(groups.client, slow, "decode", "b").status == 200
    clients = [harness.client(groups.router) for _ in range(2)]
    for number, client in enumerate(clients):
        client.send(
            request(
                "POST",
                "/v1/completions",
                ("Content-Type", "application/json"),
                body=b'{"model":"m","prompt":"hi"}',
            )
        )
        if number == 0:
            eventually(lambda: len(slow.posts) == 1, "it was not sent")
    eventually(lambda: groups.router.in_flight() == 2, "the second has not come")
    gate.set()
    assert [client.read_response().status for client in clients] == [200, 200]
    assert len(broken.posts) == 1


def test_blocks_that_are_not_fetched_are_freed_by_a_worker_of_their_group(harness: Harness) -> None:
    groups = Groups(harness, {"disable_retries": True})
    freed: list[str] = []

    def reject(group: str) -> FakeWorker:
        def serve(connection: Any, body: dict[str, Any]) -> None:
            if body.get("max_tokens") == -3:
                freed.append(group)
            connection.send(response(400, b"{}"))

        worker = serving(harness, serve)
        assert add(groups.client, worker, "decode", group).status == 200
        return worker

    groups.prefill("a")
    reject("b")
    dying = serving(harness, lambda connection, _: connection.reset())
    assert add(groups.client, dying, "decode", "a").status == 200
    assert ask(groups.client).status == 502
    reject("a")
    for _ in range(4):
        ask(groups.client)
    text = groups.router.server.metrics_text
    eventually(lambda: 'pd_claims_total{end="' in text(), "no claim ended")
    assert "b" not in freed


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"kv_group": 7}, "'kv_group' must be a string"),
        ({"kv_group": "g" * 129}, "has 129 bytes; it must have at most 128, no control characters and"),
        ({"kv_group": " a"}, "no blanks at its ends"),
        ({"kv-group": "a"}, "'kv-group' is not known; did you mean 'kv_group'?"),
        ({"kv_group": "a\nb"}, "has 3 bytes; it must have at most 128, no control characters and no blanks"),
    ],
)
def test_a_group_that_does_not_fit_is_rejected(
    groups: Groups, members: dict[str, Any], sentence: str
) -> None:
    rejected = add(groups.client, groups.harness.worker(), "prefill", "", **members)
    assert rejected.status == 400
    assert sentence in json.loads(rejected.body)["error"]


def test_a_worker_without_a_stage_has_no_group(harness: Harness) -> None:
    router = harness.router(harness.worker())
    rejected = add(harness.client(router), harness.worker(), "regular", "a")
    assert rejected.status == 400
    assert "has a kv_group, and no stage" in json.loads(rejected.body)["error"]


@pytest.mark.parametrize("seed", range(6))
def test_any_fleet_serves_exactly_where_a_pair_fits(harness: Harness, seed: int) -> None:
    dice = random.Random(seed)
    groups = Groups(harness, {"disable_retries": True})
    prefill = [dice.choice(["", "a", "b", "c"]) for _ in range(dice.randint(1, 3))]
    decode = [dice.choice(["", "a", "b", "c"]) for _ in range(dice.randint(1, 3))]
    for group in prefill:
        groups.prefill(group)
    for group in decode:
        groups.decode(group)
    fits = {(p, d) for p in prefill for d in decode if not p or not d or p == d}
    for _ in range(8):
        assert ask(groups.client).status == (200 if fits else 503)
    assert {*groups.fetched} <= fits
    assert len(groups.fetched) == (8 if fits else 0)
