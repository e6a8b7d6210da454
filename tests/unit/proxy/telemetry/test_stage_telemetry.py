"""cpp/proxy/telemetry/stage_telemetry.h: requests by their plan, their pair and their end."""

from tests.fakes.scrapes import CHAT, MS, A, exchange, page_of, worker
from vllm_router import Router
from vllm_router import _core_testing as testing

DECODE = "http://d:8000"


def test_requests_are_counted_by_their_plan_and_their_error():
    router = Router(prefill_urls=[A], decode_urls=[DECODE])
    lanes = testing.Lanes(router)
    pair = {"prefill_worker": worker(router), "prefill_ns": 30 * MS, "pd": "serial"}
    lanes.record(0, **exchange(worker(router, DECODE), **pair))
    lanes.record(0, **exchange(worker(router, DECODE), pd="local", pd_local="short", pd_saved_tokens=64))
    lanes.record(0, **exchange(status=503, error="no_workers", pd="serial"))
    page = page_of(lanes)
    assert page["pd_plan_total"].series == {(("kind", "serial"),): 2, (("kind", "local"),): 1}
    assert page["pd_local_total"].series == {(("reason", "short"),): 1}
    assert page["pd_bypass_saved_tokens_total"].value() == 64
    assert page["pd_requests_total"].series == {(("route", CHAT),): 1}
    assert page["pd_request_duration_seconds"].histogram(route=CHAT).count == 1
    assert page["pd_prefill_seconds"].histogram().count == 1
    assert page["pd_errors_total"].series == {(("error_type", "server_selection"),): 1}
