"""cpp/proxy/picker/picked_worker.h: the load, the breaker and the usage of a request at a gateway."""

import json
import re

import pytest

from tests.fakes.data_plane import chat, head, post, response_body, response_head
from tests.fakes.wire import eventually


def test_the_load_lasts_to_the_end_of_the_response(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0)
    stream = data_plane(router).stream()
    stream.send(head())
    stream.choice()
    stream.send(response_head(200))
    assert stream.receive().WhichOneof("response") == "response_headers"
    assert router.loads() == [1]
    stream.close()
    router.wait_for_load(0)


def test_the_load_moves_to_the_worker_that_served(harness, data_plane):
    workers = [harness.worker(), harness.worker()]
    router = harness.router(*workers, epp_port=0)
    stream = data_plane(router).stream()
    stream.send(head())
    chosen = stream.choice()
    (other,) = [worker.authority for worker in workers if worker.authority != chosen]
    stream.send(response_head(200, served=other))
    stream.receive()
    (busy,) = [worker.url for worker in router.core.workers if worker.load]
    assert busy == f"http://{other}"
    assert "vllm_router_epp_served_elsewhere_total 1\n" in router.server.metrics_text()
    stream.close()


def test_breakers_learn_from_responses(harness, data_plane):
    workers = [harness.worker(), harness.worker()]
    router = harness.router(*workers, epp_port=0, disable_circuit_breaker=False, cb_failure_threshold=2)
    plane = data_plane(router)
    bad = workers[0].authority
    for _ in range(12):
        stream = plane.stream()
        stream.send(head())
        chosen = stream.choice()
        stream.send(response_head(500 if chosen == bad else 200, end=True))
        stream.close()
    assert {plane.pick(head()) for _ in range(6)} == {workers[1].authority}


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_worker_is_in_backoff_and_not_at_fault(harness, data_plane, status):
    workers = [harness.worker(), harness.worker()]
    router = harness.router(*workers, epp_port=0, disable_circuit_breaker=False, cb_failure_threshold=1)
    plane = data_plane(router)
    stream = plane.stream()
    stream.send(head())
    busy = stream.choice()
    stream.send(response_head(status, end=True, fields={"retry-after": "60"}))
    stream.close()
    lines = router.server.metrics_text().splitlines()
    for name, total in (("worker_backoff", 1), ("server_errors_total", 0), ("cb_state", 0)):
        found = [line for line in lines if line.startswith(f"vllm_router_{name}{{")]
        assert sum(float(line.split()[-1]) for line in found) == total, found
    assert busy not in {plane.pick(head()) for _ in range(6)}


def test_a_response_of_an_unknown_worker_begins_no_backoff(harness, data_plane):
    router = harness.router(harness.worker(), harness.worker(), epp_port=0)
    plane = data_plane(router)
    stream = plane.stream()
    stream.send(head())
    stream.choice()
    stream.send(response_head(503, end=True, served="10.9.9.9:1", fields={"retry-after": "60"}))
    stream.close()
    assert len({plane.pick(head()) for _ in range(6)}) == 2


def test_a_probe_without_a_response_makes_room_for_another(harness, data_plane):
    workers = [harness.worker(), harness.worker()]
    breaker = {"disable_circuit_breaker": False, "cb_failure_threshold": 2, "cb_timeout_duration_secs": 0.1}
    router = harness.router(*workers, epp_port=0, first_byte_timeout_secs=0.2, **breaker)
    plane = data_plane(router)
    bad = workers[0].authority
    for _ in range(12):
        stream = plane.stream()
        stream.send(head())
        stream.send(response_head(500 if stream.choice() == bad else 200, end=True))
        stream.close()
    states = re.findall(r"^vllm_router_cb_state\{.*\} (\d)$", router.server.metrics_text(), re.MULTILINE)
    assert sum(map(int, states)) != 0, states
    held = []

    def probes():
        stream = plane.stream()
        stream.send(head())
        if stream.choice() == bad:
            held.append(stream)
            return True
        stream.send(response_head(end=True))
        stream.close()
        return False

    eventually(probes, "the breaker admits no probe")
    eventually(probes, "a probe that got no response is still the only one")
    for stream in held:
        stream.close()


USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 5,
    "total_tokens": 35,
    "prompt_tokens_details": {"cached_tokens": 16},
}
PLAIN = ("application/json", [json.dumps({"choices": [], "usage": USAGE}).encode()])
EVENTS = (
    "text/event-stream; charset=utf-8",
    [
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
        b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\ndata: [DONE]\n\n",
    ],
)


@pytest.mark.parametrize(("kind", "pieces"), [PLAIN, EVENTS], ids=("plain", "events"))
def test_a_body_that_the_gateway_sends_tells_the_usage(harness, data_plane, kind, pieces):
    router = harness.router(harness.worker(), policy="cache_aware", epp_port=0)
    stream = data_plane(router).stream()
    stream.send(*post(chat("hello")))
    stream.choice()
    stream.send(response_head(200, fields={"content-type": kind}))
    for number, piece in enumerate(pieces):
        stream.send(response_body(piece, end=number == len(pieces) - 1))
    stream.close()
    client = harness.client(router)

    def tokens():
        receipts = json.loads(client.ask("GET", "/admin/receipts").body)["receipts"]
        return [(each["prompt_tokens"], each["reported_cached_tokens"]) for each in receipts]

    eventually(tokens)
    assert tokens() == [(30, 16)]


def test_a_worker_outside_the_fleet_that_served_leaves_the_load_where_it_is(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0)
    stream = data_plane(router).stream()
    stream.send(head())
    stream.choice()
    stream.send(response_head(200, served="10.9.9.9:1"))
    stream.receive()
    assert router.loads() == [1]
    assert "vllm_router_epp_served_elsewhere_total 1\n" in router.server.metrics_text()
    stream.close()
