"""cpp/proxy/admin/process_metrics.h: figures of the server as a whole, from the first scrape on."""

from tests.fakes.scrapes import page_of
from vllm_router import Router
from vllm_router import _core_testing as testing


def test_limits_and_the_process_are_shown_before_there_is_a_request():
    page = page_of(testing.Lanes(Router(policy="random")))
    assert page["queue_depth"].value() == page["body_memory_bytes"].value() == 0
    assert page["body_memory_limit_bytes"].value() > 0
    assert page["process_resident_memory_bytes"].value() > 1_000_000
    assert page["quarantined_requests"].value() == 0
    assert page["seats"].value() == page["concurrent_requests_limit"].value()  # a former name
