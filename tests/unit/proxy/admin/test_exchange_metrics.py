"""cpp/proxy/admin/exchange_metrics.h: what a scrape makes of what the threads counted at requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.scrapes import CHAT, EMBEDDINGS, MS, A, B, exchange, page_of, worker
from vllm_router import Router
from vllm_router import _core_testing as testing


@pytest.fixture
def router():
    return Router(policy="round_robin", worker_urls=[A, B])


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
