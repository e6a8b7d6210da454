"""cpp/proxy/telemetry/telemetry_shard.h: what a thread counts by route is no other route's."""

from tests.fakes.scrapes import CHAT, EMBEDDINGS, A, exchange, page_of, worker
from vllm_router import Router
from vllm_router import _core_testing as testing


def test_routes_are_counted_apart():
    router = Router(policy="round_robin", worker_urls=[A])
    lanes = testing.Lanes(router)
    lanes.record(0, **exchange(worker(router)))
    lanes.record(0, **exchange(worker(router), route=EMBEDDINGS, status=503, retries=2))
    page = page_of(lanes)
    assert page["requests_total"].series == {(("route", CHAT),): 1}
    assert page["retries_total"].series == {(("route", EMBEDDINGS),): 2}
    assert page["http_responses_total"].series == {
        (("code", "200"), ("route", CHAT)): 1,
        (("code", "503"), ("route", EMBEDDINGS)): 1,
    }
    assert page["request_duration_seconds"].histogram(route=CHAT).count == 1
