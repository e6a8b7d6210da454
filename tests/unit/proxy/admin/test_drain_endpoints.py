"""cpp/proxy/admin/drain_endpoints.h: arguments of a drain."""

import pytest

from tests.fakes.harness import error_of


@pytest.mark.parametrize("name", ["wait", "timeout_secs"])
def test_a_time_out_of_range_is_rejected(harness, name):
    worker = harness.worker()
    answer = harness.client(harness.router(worker)).ask("POST", f"/admin/drain?url={worker.url}&{name}=-1")
    assert answer.status == 400
    assert f"'{name}' is -1" in error_of(answer)["message"]


def test_a_worker_that_is_not_there_cannot_be_drained(harness):
    assert harness.client(harness.router()).ask("POST", "/admin/drain?url=http://a:1").status == 404
