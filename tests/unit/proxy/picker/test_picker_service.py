"""cpp/proxy/picker/picker_service.h: the ports of the endpoint picker, its health, and its end."""

import socket

import pytest

from tests.fakes.data_plane import DUPLEX, body, head, response_body, response_head
from tests.fakes.wire import PATIENCE, eventually

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
    router = harness.router(worker, policy="consistent_hash", epp_port=0, shutdown_grace_period_secs=0.2)
    router.may_cut = True
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


def refuses(port):
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


def begin_body(plane, of_response):
    """A stream that sends back a body, a piece of which has come."""
    stream = plane.stream()
    beginning = head(method="POST", mode=DUPLEX, end=of_response)
    if of_response:
        beginning.protocol_config.response_body_mode = DUPLEX
    stream.send(beginning)
    stream.choice()
    if of_response:
        stream.send(response_head(200))
        stream.receive()
    send = response_body if of_response else body
    stream.send(send(b"a", end=False))
    stream.receive()
    return stream, send


@pytest.mark.parametrize("of_response", [False, True], ids=["request", "response"])
def test_a_body_that_is_sent_back_may_end_in_the_grace_period(harness, data_plane, of_response):
    router = harness.router(harness.worker(), epp_port=0, epp_health_port=0)
    stream, send = begin_body(data_plane(router), of_response)
    router.shutdown()
    eventually(lambda: refuses(router.server.epp_port), "it still listens")
    assert data_plane(router, router.server.epp_health_port).health("liveness") == "SERVING"
    stream.send(send(b"b", end=False), send(b"c"))
    kind = "response_body" if of_response else "request_body"
    parts = [getattr(stream.receive(), kind).response.body_mutation.streamed_response for _ in range(2)]
    assert [(part.body, part.end_of_stream) for part in parts] == [(b"b", False), (b"c", True)]
    stream.close()
    router.must_end()


@pytest.mark.parametrize("of_response", [False, True], ids=["request", "response"])
def test_a_body_that_outlasts_the_grace_period_fails(harness, data_plane, of_response):
    router = harness.router(harness.worker(), epp_port=0, shutdown_grace_period_secs=0.2)
    router.may_cut = True
    stream, _ = begin_body(data_plane(router), of_response)
    router.shutdown()
    code, text = stream.failure()
    assert (code.name, text) == ("UNAVAILABLE", "the router stops, and sends back no more of the body")
    router.must_end()


def test_requests_in_the_queue_get_workers_in_the_grace_period(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0, max_concurrent_requests=1, queue_size=5)
    plane = data_plane(router)
    first, second = plane.stream(), plane.stream()
    first.send(head())
    first.choice()
    second.send(head())
    eventually(lambda: router.in_flight() == 2)
    router.shutdown()
    assert second.choice() == worker.authority
    first.close()
    second.close()
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
