"""cpp/proxy/telemetry/telemetry.h: one exchange is counted, and told in the log, once."""

import json

import pytest

from tests.fakes.scrapes import CHAT, A, exchange, page_of, worker
from vllm_router import Router
from vllm_router import _core_testing as testing


@pytest.fixture(autouse=True)
def _log_as_before():
    yield
    testing.configure_log()


def test_an_exchange_is_a_count_and_a_line():
    testing.configure_log(json=True)
    router = Router(policy="round_robin", worker_urls=[A])
    lanes = testing.Lanes(router, count=2, access_log=True)
    lanes.record(1, **exchange(worker(router)))
    assert [lanes.has_lines(lane) for lane in (0, 1)] == [False, True]
    page = page_of(lanes)
    assert page["requests_total"].series == {(("route", CHAT),): 1}
    assert page["processed_requests_total"].value(worker=A) == 1
    lanes.flush(1)
    (line,) = lanes.written().splitlines()
    assert json.loads(line)["status"] == 200
    assert page_of(lanes)["requests_total"].total() == 1
