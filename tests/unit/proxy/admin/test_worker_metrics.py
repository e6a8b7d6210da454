"""cpp/proxy/admin/worker_metrics.h: series of workers, and when they end."""

import pytest

from tests.fakes.scrapes import CHAT, A, B, exchange, page_of, worker
from vllm_router import Router
from vllm_router import _core_testing as testing


@pytest.fixture
def router():
    return Router(policy="round_robin", worker_urls=[A, B])


def test_first_tokens_are_those_of_good_streams(router):
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(worker(router), stream=False))
    lanes.record(0, **exchange(worker(router), status=500))
    lanes.record(0, **exchange(worker(router), first_body_ns=0, end="worker_gone"))
    page = page_of(lanes)
    assert page["ttft_seconds"].series == {}
    assert page["upstream_head_seconds"].histogram(route=CHAT, worker=A).count == 3


def test_gauges_of_the_fleet_are_those_of_this_moment(router):
    lanes = testing.Lanes(router)
    router.add_worker("http://c:8000", weight=2.0)
    tickets = [router.select() for _ in range(6)]  # by weight: 3 go to c
    router.set_healthy(A, False)
    router.drain_worker(B)
    page = page_of(lanes)
    loads = {entry.url: entry.load for entry in router.workers}
    assert {url: page["running_requests"].value(worker=url) for url in loads} == loads
    assert page["worker_load"].value(worker="http://c:8000") == loads["http://c:8000"] / 2
    assert page["worker_health"].value(worker=A) == 0
    assert page["worker_health"].value(worker=B) == 1
    assert page["active_workers"].value() == 3
    assert page["eligible_workers"].value() == 1
    assert page["max_load"].value() == page["min_load"].value() == loads["http://c:8000"]
    for ticket in tickets:
        ticket.finish(status=200)
    assert page_of(lanes)["max_load"].value() == 0


def test_an_empty_fleet_has_no_load():
    lanes = testing.Lanes(Router(policy="random"))
    page = page_of(lanes)
    assert page["max_load"].value() == page["min_load"].value() == 0
    assert page["worker_load"].series == {}


# Scrapes of a worker that leaves:
#
#   scrape      1     2          3              4
#   seconds     0     ..        +0 ....... +59.9  +60
#   worker a    here  removed  shown          shown  gone


def test_a_removed_workers_series_end_a_minute_later(router):
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(worker(router)))
    page_of(lanes)
    router.remove_worker(A)
    page = page_of(lanes)
    assert page["processed_requests_total"].value(worker=A) == 1
    assert page["ttft_seconds"].histogram(route=CHAT, worker=A).count == 1
    assert A not in page["worker_health"].values_of("worker")  # a gauge has nothing to say any more

    lanes.advance(59.9)
    assert A in page_of(lanes)["processed_requests_total"].values_of("worker")
    lanes.advance(0.1)
    page = page_of(lanes)
    assert all(A not in family.values_of("worker") for family in page.values())
    assert B in page["processed_requests_total"].values_of("worker")
    assert page["requests_total"].value(route=CHAT) == 1  # what is not the worker's stays


def test_an_exchange_that_ends_after_its_worker_left_is_still_counted(router):
    lanes = testing.Lanes(router)
    leaving = worker(router)
    page_of(lanes)
    router.remove_worker(A)
    page_of(lanes)
    lanes.record(0, **exchange(leaving))
    assert page_of(lanes)["processed_requests_total"].value(worker=A) == 1


def test_a_worker_that_comes_back_begins_again_at_once(router):
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(worker(router)))
    page_of(lanes)
    router.remove_worker(A)
    page_of(lanes)
    router.add_worker(A)
    assert page_of(lanes)["processed_requests_total"].value(worker=A) == 0
    lanes.record(0, **exchange(worker(router)))
    assert page_of(lanes)["processed_requests_total"].value(worker=A) == 1
    lanes.advance(100)
    assert page_of(lanes)["processed_requests_total"].value(worker=A) == 1


def test_counts_of_a_shown_worker_survive_the_arrival_of_others(router):
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(worker(router)))
    page_of(lanes)
    router.remove_worker(A)
    page_of(lanes)
    router.add_worker("http://c:8000")
    lanes.record(
        0, **exchange(worker(router, "http://c:8000"))
    )  # the moment at which the unused are given up
    assert page_of(lanes)["processed_requests_total"].value(worker=A) == 1


def test_what_came_of_prompts_has_the_references_names():
    router = Router(policy="cache_aware", worker_urls=[A, B])
    lanes = testing.Lanes(router)
    series = page_of(lanes)["prefix_routing_decisions_total"].series
    assert {dict(labels)["outcome"] for labels in series} == {
        "prefix_hit",
        "prefix_miss",
        "prefix_cost",
        "load_imbalance",
        "missing_tokens",
    }
    assert {(dict(labels)["policy"], dict(labels)["stage"]) for labels in series} == {
        ("cache_aware", "regular")
    }
