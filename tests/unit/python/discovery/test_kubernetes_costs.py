"""Pod deletion costs: what pods are worth, when that is written, and what goes wrong, over HTTP."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.kubernetes import FakeKubernetes, pod
from tests.fakes.wire import eventually
from vllm_router import Router
from vllm_router.discovery import kubernetes_costs
from vllm_router.discovery.kubernetes_client import CutError, HttpError, SilentError
from vllm_router.discovery.kubernetes_costs import (
    ANNOTATION,
    EVERY_SECS,
    LARGEST,
    MOST_WRITES,
    DeletionCosts,
    Pod,
    PodValues,
    Use,
)
from vllm_router.testing import SimulatedWorker

A, B = (Pod("default", name, f"uid-{name}", (f"http://10.0.0.{n}:8000",)) for n, name in enumerate("ab"))


def use(one: Pod, requests: int = 0, cached: int = 0) -> Use:
    return Use(one.urls[0], requests, cached)


def names(due: list[tuple[Pod, int]]) -> dict[str, int]:
    return {one.name: cost for one, cost in due}


# What pods are worth


def test_requests_and_what_the_cache_saved_in_ten_minutes_are_the_cost() -> None:
    values = PodValues()
    values.observe(0, [use(A, cached=1000), use(B)])
    costs = values.observe(30, [use(A, 2, 1000 + 256 * 50), use(B)])
    assert names(values.due([A, B], costs)) == {"a": 250, "b": 0}


def test_what_was_saved_longer_ago_is_worth_nothing() -> None:
    values = PodValues()
    values.observe(0, [use(A)])
    for now in range(30, 3000, 30):
        costs = values.observe(now, [use(A, cached=256 * 1000)])
        expected = 1000 if now < 30 + 600 else 0
        assert costs == dict.fromkeys(costs, expected), now
        assert len(values._seen) <= 22


def test_a_worker_whose_count_begins_again_is_worth_what_it_counted() -> None:
    values = PodValues()
    values.observe(0, [use(A, cached=10**9)])
    assert [*values.observe(30, [use(A, cached=512)]).values()] == [2]


def test_a_pod_of_several_workers_is_their_sum_and_spellings_of_a_url_are_one_worker() -> None:
    both = Pod("default", "two", "u", ("http://10.0.0.9:80", "http://10.0.0.9:81", "no URL"))
    values = PodValues()
    costs = values.observe(0, [Use("http://10.0.0.9", 1, 0), Use("http://10.0.0.9:81", 2, 0)])
    assert names(values.due([both], costs)) == {"two": 300}


def test_a_pod_that_is_not_in_the_fleet_is_left_alone() -> None:
    values = PodValues()
    assert values.due([A, B], values.observe(0, [use(B, 1)])) == [(B, 100)]


def test_a_cost_fits_into_the_annotation() -> None:
    values = PodValues()
    costs = values.observe(0, [use(A, 10**12), use(B, 10**12)])
    assert names(values.due([A, B], costs)) == {"a": LARGEST, "b": LARGEST}


def test_only_what_has_moved_by_a_quarter_is_written() -> None:
    values = PodValues()
    for requests, is_due in ((10, True), (12, False), (13, True), (10, False), (9, True), (0, True)):
        due = values.due([A], values.observe(0, [use(A, requests)]))
        assert bool(due) == is_due, requests
        for one, cost in due:
            values.wrote(one, cost)
    values.forget()
    assert values.due([A], values.observe(0, [use(A, 0)])) == [(A, 0)]


def test_a_pod_that_has_gone_is_forgotten() -> None:
    values = PodValues()
    values.wrote(A, 100)
    values.due([], {})
    assert values._written == {}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_what_is_written_is_within_a_quarter_of_what_is(story: list[tuple[int, int]]) -> None:
    values = PodValues()
    written: dict[Pod, int] = {}
    for now, (a, b) in enumerate(story):
        costs = values.observe(now, [use(A, a), use(B, b)])
        for one, cost in values.due([A, B], costs):
            values.wrote(one, cost)
            written[one] = cost
        for one, requests in ((A, a), (B, b)):
            assert abs(written[one] - 100 * requests) < max(25, written[one] / 4 + 1)


# What goes wrong


class Writer:
    def __init__(self) -> None:
        self.wrote: list[tuple[str, str]] = []
        self.errors: list[Exception] = []
        self.renewed = 0

    def annotate_pod(self, namespace: str, name: str, uid: str, key: str, value: str, secs: float) -> None:
        assert (uid, key) == (f"uid-{name}", ANNOTATION)
        assert namespace in ("default", "other")
        assert secs <= 10
        if self.errors:
            raise self.errors.pop(0)
        self.wrote.append((name, value))

    def renew(self) -> None:
        self.renewed += 1


def costs_of(
    writer: Writer, uses: list[Use], pods: list[Pod], clock: Callable[[], float] = time.monotonic
) -> DeletionCosts:
    return DeletionCosts(writer, lambda: pods, lambda: uses, clock=clock)


def test_the_largest_changes_come_first_and_a_turn_is_bounded() -> None:
    writer = Writer()
    pods = [
        Pod("default", f"p{n}", f"uid-p{n}", (f"http://10.1.{n // 250}.{n % 250}:1",)) for n in range(1200)
    ]
    costs = costs_of(writer, [Use(one.urls[0], n, 0) for n, one in enumerate(pods)], pods)
    assert costs.turn() == EVERY_SECS
    assert len(writer.wrote) == MOST_WRITES
    assert writer.wrote[0] == ("p1199", "119900")
    costs.turn()
    costs.turn()
    assert len(writer.wrote) == len({name for name, _ in writer.wrote}) == 1200
    costs.turn()
    assert len(writer.wrote) == 1200


@pytest.mark.parametrize(
    "error",
    [HttpError(404, "gone"), HttpError(409, "gone"), HttpError(422, "metadata.uid: field is immutable")],
)
def test_a_pod_that_has_gone_does_not_hold_up_the_others(
    error: HttpError, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer()
    writer.errors = [error]
    assert costs_of(writer, [use(A, 2), use(B, 1)], [A, B]).turn() == EVERY_SECS
    assert writer.wrote == [("b", "100")]
    assert caplog.messages == []


@pytest.mark.parametrize("status", [403, 422])
def test_a_pod_that_may_not_be_written_does_not_hold_up_the_others(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    writer, now = Writer(), [0.0]
    other = B._replace(namespace="other")
    costs = costs_of(writer, [use(A, 2), use(other, 1)], [A, other], lambda: now[0])
    writer.errors = [HttpError(status, "no")]
    assert costs.turn() == EVERY_SECS
    assert writer.wrote == [("b", "100")]
    assert ("the verb patch of pods" in caplog.messages[0]) == (status == 403)
    now[0] = 290.0
    costs.turn()
    assert writer.wrote == [("b", "100")]
    now[0] = 310.0
    costs.turn()
    assert dict(writer.wrote) == {"a": "200", "b": "100"}


@pytest.mark.parametrize(
    ("error", "pause"),
    [
        (HttpError(429, "slow down", 60.0), 60),
        (HttpError(429, "slow down", 1e9), 300),
        (HttpError(401, "Unauthorized"), EVERY_SECS),
        (HttpError(500, ""), EVERY_SECS),
        (CutError("connection refused"), EVERY_SECS),
        (SilentError("timed out"), EVERY_SECS),
    ],
)
def test_trouble_ends_a_turn_and_is_logged_once(
    error: Exception, pause: float, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer()
    writer.errors = [error] * 3
    costs = costs_of(writer, [use(A, 2), use(B, 1)], [A, B])
    assert [costs.turn() for _ in range(3)] == [pause] * 3
    assert writer.wrote == []
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("pod deletion costs cannot be written: ")
    assert writer.renewed == (3 if "401" in str(error) else 0)
    costs.turn()
    assert dict(writer.wrote) == {"a": "200", "b": "100"}


def test_a_router_that_does_not_lead_writes_nothing_and_all_once_it_does() -> None:
    writer = Writer()
    uses: list[list[Use] | None] = [[use(A, 1)], None, [use(A, 1)]]
    costs = DeletionCosts(writer, lambda: [A], lambda: uses.pop(0))
    for written in (1, 1, 2):
        costs.turn()
        assert len(writer.wrote) == written


# Over HTTP


def test_costs_are_written_to_the_pods_that_are_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("kubernetes")
    caplog.set_level(logging.WARNING, "vllm_router.discovery")
    monkeypatch.setattr(kubernetes_costs, "EVERY_SECS", 0.05)
    with SimulatedWorker() as worker, FakeKubernetes() as cluster:
        port = int(worker.url.rpartition(":")[2])
        thing = pod("vllm-0", "127.0.0.1", namespace="models", ports={"http": port})
        cluster.put(thing)
        settings: dict[str, Any] = {
            "service_discovery": True,
            "selector": ["app=vllm"],
            "service_discovery_port": "http",
            "service_discovery_namespace": "models",
            "kubeconfig": cluster.kubeconfig(tmp_path),
            "port": 0,
        }
        router = Router()
        with router.serve(pod_deletion_cost=True, **settings):
            eventually(lambda: cluster.annotations(thing) == {ANNOTATION: "0"})
            tickets = [router.select() for _ in range(3)]
            eventually(lambda: cluster.annotations(thing) == {ANNOTATION: "300"})
            cluster.forbidden.add(("patch", "models"))
            for ticket in tickets:
                ticket.finish()
            eventually(lambda: any("403" in message for message in caplog.messages))
            assert cluster.annotations(thing) == {ANNOTATION: "300"}
        count = cluster.count("patch")
        other = Router()
        with other.serve(**settings):
            eventually(lambda: other.worker_urls == [worker.url])
        assert cluster.count("patch") == count  # unless it is wanted
