"""cpp/proxy/telemetry/event_counts.h: connections, and results of what is tried."""

from tests.fakes.scrapes import A, B, page_of
from vllm_router import Router
from vllm_router import _core_testing as testing


def test_connections_of_the_control_lane_are_not_clients():
    lanes = testing.Lanes(Router(policy="round_robin", worker_urls=[A, B]), count=3)
    for lane, count in enumerate([5, 6, 1]):
        lanes.set_gauge(lane, "client_connections", count)
        lanes.set_gauge(lane, "upstream_open", 4)
        lanes.set_gauge(lane, "upstream_idle", 1)
    page = page_of(lanes)
    assert page["client_connections"].value() == 11
    assert page["upstream_connections"].value(state="active") == 9
    assert page["upstream_connections"].value(state="idle") == 3


def test_each_result_has_a_series_before_there_is_one():
    page = page_of(testing.Lanes(Router(policy="random", worker_urls=[A])))
    assert page["upstream_connects_total"].series == {(("result", "ok"),): 0, (("result", "failed"),): 0}
    assert page["load_polls_total"].series == {(("result", "ok"),): 0, (("result", "failed"),): 0}
    rejected = page["key_validations_rejected_total"].series
    assert rejected == {(("reason", "queue_full"),): 0, (("reason", "address_share"),): 0}
