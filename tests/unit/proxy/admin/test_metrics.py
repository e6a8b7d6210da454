"""cpp/proxy/admin/metrics.h: the page as a whole."""

import pytest

from tests.fakes.scrapes import A, B, page_of
from vllm_router import Router
from vllm_router import _core_testing as testing


@pytest.fixture
def router():
    return Router(policy="round_robin", worker_urls=[A, B])


def test_the_page_begins_with_zeros(router):
    page = page_of(testing.Lanes(router))
    assert page["in_flight"].value() == 0
    assert page["processed_requests_total"].series == {(("worker", A),): 0, (("worker", B),): 0}
    assert page["overhead_seconds"].histogram().count == 0
    assert page["requests_total"].series == {}
    assert page["active_workers"].value() == page["eligible_workers"].value() == 2
