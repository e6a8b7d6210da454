"""cpp/proxy/picker/pick_rejection.h: without a worker there is the proxy's error, and llm-d's reason."""

import json

import pytest

from tests.fakes.data_plane import head, response_head


@pytest.mark.parametrize("subset", [["10.0.0.1:80"], [], ["no endpoint"]], ids=("other", "empty", "misfit"))
def test_a_subset_without_a_worker_is_rejected(harness, data_plane, subset):
    stream = data_plane(harness.router(harness.worker(), epp_port=0)).stream()
    stream.send(head(subset=subset))
    status, fields, text = stream.rejection()
    assert (status, fields["x-llm-d-request-dropped-reason"]) == (503, "rejected-no-endpoints")
    assert "endpoints that the gateway lists" in json.loads(text)["error"]["message"]
    stream.close()


def test_without_a_worker_a_request_is_rejected(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0)
    router.core.set_healthy(worker.url, False)
    stream = data_plane(router).stream()
    stream.send(head())
    status, fields, text = stream.rejection()
    assert (status, fields["retry-after"], fields["content-type"]) == (503, "1", "application/json")
    assert json.loads(text)["error"]["code"] == "no_workers"
    stream.close()


def test_the_rate_limit_counts_what_gateways_send(harness, data_plane):
    plane = data_plane(harness.router(harness.worker(), epp_port=0, rate_limit_tokens_per_second=1))
    plane.pick(head())
    stream = plane.stream()
    stream.send(head())
    status, fields, text = stream.rejection()
    assert (status, fields["x-llm-d-request-dropped-reason"]) == (429, "rejected-saturated")
    assert json.loads(text)["error"]["code"] == "rate_limited"
    stream.close()


def test_a_full_queue_rejects(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0, max_concurrent_requests=1, queue_size=0)
    plane = data_plane(router)
    first, second = plane.stream(), plane.stream()
    first.send(head())
    first.choice()
    second.send(head())
    assert second.rejection()[0] == 429
    first.send(response_head(end=True))
    first.close()
    second.close()
    plane.pick(head())


def test_a_wait_in_the_queue_ends(harness, data_plane):
    router = harness.router(
        harness.worker(), epp_port=0, max_concurrent_requests=1, queue_size=5, queue_timeout_secs=0.2
    )
    plane = data_plane(router)
    first, second = plane.stream(), plane.stream()
    first.send(head())
    first.choice()
    second.send(head())
    status, fields, _ = second.rejection()
    assert (status, fields["x-llm-d-request-dropped-reason"]) == (408, "rejected-ttl-expired")
    first.close()
    second.close()
