"""cpp/proxy/admin/telemetry_sums.h: counts of several threads are one sum."""

import threading

import pytest

from tests.fakes.prometheus_text import never_fell, parse
from tests.fakes.scrapes import CHAT, A, B, exchange, page_of, worker
from vllm_router import Router
from vllm_router import _core_testing as testing


@pytest.fixture
def router():
    return Router(policy="round_robin", worker_urls=[A, B])


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
