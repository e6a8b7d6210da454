"""cpp/proxy/picker/picker_service.h: the ports of the endpoint picker, its health, and its end."""

import pytest

from tests.fakes.data_plane import DUPLEX, head, response_head

PROCESSOR = "envoy.service.ext_proc.v3.ExternalProcessor"


def test_health_is_that_of_the_fleet(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0)
    plane = data_plane(router)
    names = ("", "readiness", "inference-extension", PROCESSOR)
    assert {plane.health(name) for name in names} == {"SERVING"}
    assert plane.health("another") == "NOT_FOUND"
    router.core.set_healthy(worker.url, False)
    assert {plane.health(name) for name in names} == {"NOT_SERVING"}
    assert plane.health("liveness") == "SERVING"


def test_health_has_a_port_of_its_own_that_picks_nothing(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0, epp_health_port=0)
    plane = data_plane(router, router.server.epp_health_port)
    assert plane.health() == "SERVING"
    stream = plane.stream()
    stream.send(head())
    code, text = stream.failure()
    assert (code.name, text) == ("UNIMPLEMENTED", "this port serves no such method")


def test_all_threads_serve_one_port(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0, threads=3)
    for _ in range(8):
        assert data_plane(router).pick(head()) == worker.authority


def test_a_port_that_is_taken_is_an_error(harness):
    taken = harness.worker()
    with pytest.raises(OSError, match=str(taken.port)):
        harness.router(harness.worker(), epp_host="127.0.0.1", epp_port=taken.port)


def test_at_the_end_gateways_go_on_by_themselves(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, policy="consistent_hash", epp_port=0)
    plane = data_plane(router)
    chosen, undecided = plane.stream(), plane.stream()
    chosen.send(head())
    chosen.choice()
    undecided.send(head(method="POST", mode=2))
    undecided.receive()
    router.shutdown()
    status, fields, _ = undecided.rejection()
    assert (status, fields["x-llm-d-request-dropped-reason"]) == (503, "rejected-shutting-down")
    chosen.close()
    undecided.close()
    router.must_end()


def test_metrics_tell_of_streams_and_connections(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0)
    stream = data_plane(router).stream()
    stream.send(head(mode=DUPLEX))
    stream.choice()
    text = router.server.metrics_text()
    assert "vllm_router_epp_streams 1\n" in text
    assert "vllm_router_epp_connections 1\n" in text
    stream.send(response_head(end=True))
    stream.close()
