"""What a scrape makes of what the lanes counted. Workers here are names; nothing listens behind them."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.prometheus_text import never_fell, parse
from vllm_router import Router
from vllm_router import _core_testing as testing

MS = 1_000_000
A, B = "http://a:8000", "http://b:8000@1"
CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"


@pytest.fixture
def router():
    return Router(policy="round_robin", worker_urls=[A, B])


def worker(router, url=A):
    return testing.WorkerHandle.of(router, url)


def exchange(handle=None, **more):
    """A streamed chat: head at 1 s; then, ms by ms, sent, answered, first byte, end."""
    fields = {
        "head_ns": 1000 * MS,
        "body_ns": 1000 * MS,
        "sent_ns": 1001 * MS,
        "answered_ns": 1002 * MS,
        "first_body_ns": 1003 * MS,
        "end_ns": 1004 * MS,
        "route": CHAT,
        "status": 200,
        "stream": True,
    }
    if handle is not None:
        fields |= {"worker": handle, "attempts": 1, "reason": "round_robin"}
    return fields | more


def page_of(lanes):
    return {name.removeprefix("vllm_router_"): family for name, family in parse(lanes.text()).items()}


def test_the_page_begins_with_zeros(router):
    page = page_of(testing.Lanes(router))
    assert page["in_flight"].value() == 0
    assert page["processed_requests_total"].series == {(("worker", A),): 0, (("worker", B),): 0}
    assert page["overhead_seconds"].histogram().count == 0
    assert page["requests_total"].series == {}
    assert page["active_workers"].value() == page["eligible_workers"].value() == 2


def test_lanes_are_added_up(router):
    lanes = testing.Lanes(router, count=3)
    for lane in range(3):
        lanes.decided(lane, worker(router), "round_robin")
        lanes.record(
            lane, **exchange(worker(router), prompt_tokens=100, completion_tokens=7, cached_tokens=64)
        )
    page = page_of(lanes)
    assert page["requests_total"].value(route=CHAT) == 3
    assert page["http_responses_total"].value(route=CHAT, code="200") == 3
    assert page["exchange_end_total"].value(route=CHAT, end="done") == 3
    assert page["policy_decisions_total"].value(policy="round_robin", worker=A) == 3
    assert page["decision_reasons_total"].value(policy="round_robin", reason="round_robin") == 3
    assert page["processed_requests_total"].series == {(("worker", A),): 3, (("worker", B),): 0}
    assert page["prompt_tokens_total"].value(worker=A) == 300
    assert page["completion_tokens_total"].value(worker=A) == 21
    assert page["cached_tokens_total"].value(worker=A) == 192
    assert page["ttft_seconds"].histogram(route=CHAT, worker=A).count == 3


def test_each_time_is_measured_between_its_two_steps(router):
    lanes = testing.Lanes(router)
    lanes.record(
        0,
        **exchange(
            worker(router),
            head_ns=1_000 * MS,
            body_ns=3_000 * MS,  # two seconds for the body, which are nobody's overhead
            sent_ns=3_000 * MS + 20_000,
            answered_ns=3_300 * MS + 20_000,
            first_body_ns=3_400 * MS,
            end_ns=8_000 * MS,
        ),
    )
    page = page_of(lanes)
    assert page["overhead_seconds"].histogram().sum == pytest.approx(20e-6)
    assert page["upstream_head_seconds"].histogram(route=CHAT, worker=A).sum == pytest.approx(0.3)
    assert page["ttft_seconds"].histogram(route=CHAT, worker=A).sum == pytest.approx(2.4)
    assert page["request_duration_seconds"].histogram(route=CHAT).sum == pytest.approx(7)
    assert page["generate_duration_seconds"].histogram().sum == pytest.approx(7)


DURATION_BOUNDS = [
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180, 240),
    float("inf"),
]


def test_the_buckets_of_durations_are_the_references(router):
    page = page_of(testing.Lanes(router))
    assert list(page["generate_duration_seconds"].histogram().buckets) == DURATION_BOUNDS


@given(st.integers(0, 10**12))
def test_a_time_falls_into_the_first_bucket_that_is_not_smaller(nanos):
    lanes = testing.Lanes(Router(policy="random"))
    lanes.record(0, **exchange(head_ns=1, end_ns=1 + nanos))
    histogram = page_of(lanes)["request_duration_seconds"].histogram(route=CHAT)
    assert histogram.buckets == {bound: int(nanos <= bound * 10**9) for bound in DURATION_BOUNDS}
    assert histogram.sum == pytest.approx(nanos / 1e9)


@pytest.mark.parametrize(
    ("more", "error_type"),
    [
        ({"status": 503, "error": "no_workers"}, "no_available_workers"),
        ({"status": 502, "error": "worker_unreachable"}, "worker_unreachable"),
        ({"status": 404}, "non_retryable_error"),
        ({"status": 302}, "non_retryable_error"),
        ({"status": 0, "end": "client_gone"}, "client_gone"),
        ({"status": 200, "end": "client_gone"}, "client_gone"),
        ({"status": 200, "end": "slow_client"}, "slow_client"),
        ({"status": 200, "end": "worker_gone", "error": "worker_closed"}, "worker_closed"),
        ({"status": 200, "end": "timeout", "error": "stream_idle_timeout"}, "stream_idle_timeout"),
        ({"status": 200, "end": "drain"}, "drain"),
    ],
)
def test_a_request_is_a_success_or_an_error_of_one_type(router, more, error_type):
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(worker(router), **more))
    page = page_of(lanes)
    assert page["requests_total"].series == {}
    assert page["request_errors_total"].series == {(("error_type", error_type), ("route", CHAT)): 1}
    assert page["generate_duration_seconds"].histogram().count == 0
    assert page["request_duration_seconds"].histogram(route=CHAT).count == 1


def test_a_stream_without_its_done_is_an_end_of_its_own_but_no_error(router):
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(worker(router), end="no_done"))
    page = page_of(lanes)
    assert page["requests_total"].value(route=CHAT) == 1
    assert page["exchange_end_total"].value(route=CHAT, end="no_done") == 1


@pytest.mark.parametrize("route", ["other", "/v1/score", "/classify", "/v2/rerank", "/v1/audio/speech"])
def test_what_goes_to_a_worker_is_a_request_and_our_own_endpoints_are_none(router, route):
    """mending row 26: every path counts."""
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(route="/health", stream=False))
    lanes.record(0, **exchange(worker(router), route=route))
    page = page_of(lanes)
    assert page["requests_total"].series == {(("route", route),): 1}
    assert page["request_duration_seconds"].histogram(route=route).count == 1
    assert page["http_responses_total"].total() == page["exchange_end_total"].total() == 2
    assert page["processed_requests_total"].value(worker=A) == 1


def test_embeddings_have_a_family_of_their_own(router):
    lanes = testing.Lanes(router)
    for more in (
        {},
        {"status": 503},
        {"status": 200, "end": "worker_gone", "error": "worker_closed"},
        {"status": 0, "end": "client_gone"},
        {"status": 504, "end": "timeout", "error": "first_byte_timeout"},
    ):
        lanes.record(0, **exchange(worker(router), route=EMBEDDINGS, stream=False, **more))
    page = page_of(lanes)
    assert page["embeddings_total"].value() == 1
    assert page["embeddings_duration_seconds"].histogram().count == 1
    assert page["generate_duration_seconds"].histogram().count == 0
    assert page["embeddings_errors_total"].series == {
        (("error_type", "http_503"),): 1,
        (("error_type", "worker_gone"),): 1,
        (("error_type", "client_gone"),): 1,
        (("error_type", "http_504"),): 1,
    }


def test_first_tokens_are_those_of_good_streams(router):
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(worker(router), stream=False))
    lanes.record(0, **exchange(worker(router), status=500))
    lanes.record(0, **exchange(worker(router), first_body_ns=0, end="worker_gone"))
    page = page_of(lanes)
    assert page["ttft_seconds"].series == {}
    assert page["upstream_head_seconds"].histogram(route=CHAT, worker=A).count == 3


def test_what_never_reached_a_worker_is_not_counted_there(router):
    # chosen, but nothing was sent: the connection failed
    lanes = testing.Lanes(router)
    lanes.record(
        0,
        **exchange(
            worker(router), attempts=0, status=502, answered_ns=0, sent_ns=0, bytes_in=10, bytes_out=20
        ),
    )
    page = page_of(lanes)
    assert page["processed_requests_total"].value(worker=A) == 0
    assert page["overhead_seconds"].histogram().count == 0
    assert page["bytes_total"].value(side="client", direction="in") == 10
    assert page["bytes_total"].value(side="client", direction="out") == 20
    assert page["bytes_total"].value(side="worker", direction="in") == 0
    assert page["bytes_total"].value(side="worker", direction="out") == 0


def test_bytes_and_stalls_are_told_apart_by_side(router):
    lanes = testing.Lanes(router)
    lanes.record(
        0,
        **exchange(
            worker(router), bytes_in=10, bytes_out=20, client_stalls=3, worker_stalls=1, stale_retry=True
        ),
    )
    page = page_of(lanes)
    sides = [("client", "in"), ("client", "out"), ("worker", "in"), ("worker", "out")]
    assert [page["bytes_total"].value(side=side, direction=way) for side, way in sides] == [10, 20, 20, 10]
    assert page["relay_stalls_total"].value(side="client") == 3
    assert page["relay_stalls_total"].value(side="worker") == 1
    assert page["upstream_stale_retries_total"].value() == 1


def test_a_refused_head_is_counted_by_the_rule_it_broke(router):
    lanes = testing.Lanes(router)
    for rule in ("content_length", "content_length", "tls"):
        lanes.record(0, status=400, error="bad_request", rule=rule)
    assert page_of(lanes)["bad_requests_total"].series == {
        (("reason", "content_length"),): 2,
        (("reason", "tls"),): 1,
    }


def test_more_names_than_there_is_room_for_are_counted_as_other(router):
    lanes = testing.Lanes(router)
    for number in range(100):
        lanes.record(0, status=400, rule=f"rule_{number}")
    reasons = page_of(lanes)["bad_requests_total"]
    assert reasons.total() == 100
    assert len(reasons.series) < 60
    assert reasons.value(reason="other") > 40


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(100, 599)), max_size=50))
def test_every_status_is_counted_as_it_is(answers):
    lanes = testing.Lanes(Router(policy="random"), count=3)
    for lane, status in answers:
        lanes.record(lane, **exchange(status=status))
    codes = [str(status) for _, status in answers]
    assert page_of(lanes)["http_responses_total"].series == {
        (("code", code), ("route", CHAT)): codes.count(code) for code in codes
    }


@pytest.mark.parametrize("status", [0, 99, 600, 2000, -1])
def test_what_is_no_status_is_no_answer(router, status):
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(status=status))
    page = page_of(lanes)
    assert page["http_responses_total"].series == {}
    assert page["exchange_end_total"].total() == 1


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


def test_connections_of_the_control_lane_are_not_clients(router):
    lanes = testing.Lanes(router, count=3)
    for lane, count in enumerate([5, 6, 1]):
        lanes.set_gauge(lane, "client_connections", count)
        lanes.set_gauge(lane, "upstream_open", 4)
        lanes.set_gauge(lane, "upstream_idle", 1)
    page = page_of(lanes)
    assert page["client_connections"].value() == 11
    assert page["upstream_connections"].value(state="active") == 9
    assert page["upstream_connections"].value(state="idle") == 3


# ---- workers that leave
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


# ---- two threads


def test_counts_never_fall_while_lanes_count(router):
    lanes = testing.Lanes(router, count=2)
    each = 20_000
    threads = [
        threading.Thread(target=lanes.record_often, args=(lane, each), kwargs=exchange(worker(router, url)))
        for lane, url in enumerate([A, B])
    ]
    last = parse(lanes.text())
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        page = parse(lanes.text())
        never_fell(last, page)
        last = page
    for thread in threads:
        thread.join()
    assert page_of(lanes)["exchange_end_total"].total() == 2 * each


def test_what_came_of_prompts_has_the_references_names():
    """mending row 26"""
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
