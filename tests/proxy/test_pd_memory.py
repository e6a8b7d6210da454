"""A prefill worker's response is held in the memory for bodies, and a prefill of no use ends."""

import json
import re

import pytest

from tests.fakes.harness import Streaming, error_of
from tests.fakes.pd import PARAMETERS, ask, prefill_response, staged
from tests.fakes.wire import chunked, eventually, request, response

MIB = 1 << 20
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def held(router):
    found = re.search(r"^vllm_router_body_memory_bytes (\S+)$", router.server.metrics_text(), re.MULTILINE)
    return int(float(found[1]))


def telling(harness, size, *, by_chunks=False):
    """A prefill worker whose response has so many bytes."""
    whole = prefill_response(PARAMETERS, filler="x" * size)
    sent = CHUNKED + chunked(whole) if by_chunks else response(200, whole)
    return harness.worker(lambda connection, _: connection.send(sent))


@pytest.mark.parametrize("by_chunks", [False, True])
def test_one_that_does_not_fit_is_503_and_decode_gets_nothing(harness, by_chunks):
    decode = harness.worker()
    router = staged(harness, [telling(harness, 20 * MIB, by_chunks=by_chunks)], [decode], body_memory_mb=16)
    client = harness.client(router)
    message = ask(client)
    assert (message.status, message.get("retry-after")) == (503, "1")
    assert error_of(message)["code"] == "no_body_memory"
    router.must_rest()
    assert decode.requests == []
    assert held(router) == 0


@pytest.mark.parametrize("by_chunks", [False, True])
def test_one_that_fits_is_given_back(harness, by_chunks):
    decode = harness.worker()
    router = staged(harness, [telling(harness, 6 * MIB, by_chunks=by_chunks)], [decode], body_memory_mb=16)
    client = harness.client(router)
    for _ in range(4):
        assert ask(client).body == b"hello"
    assert json.loads(decode.requests[0].body)["kv_transfer_params"] == PARAMETERS
    router.must_rest()
    assert held(router) == 0


def test_of_one_that_was_read_the_parameters_alone_are_held(harness):
    decode = Streaming(harness)
    router = staged(harness, [telling(harness, 6 * MIB)], [decode], body_memory_mb=16)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=b'{"model":"m","prompt":"hi","stream":true}'))
    client.read_until(b"data: 1\n\n\r\n")
    assert held(router) < 1_000
    decode.gate.open()
    client.read_to_last_chunk()
    router.must_rest()
    assert held(router) == 0


def test_a_prefill_that_runs_on_without_a_client_ends_after_a_while(harness):
    """With --pd-cancel-prefill never it runs to its end, or to --pd-drain-secs."""
    silent = harness.worker(lambda connection, _: connection.ending())
    options = {"pd_cancel_prefill": "never", "pd_drain_secs": 1}
    router = staged(harness, [silent], [harness.worker()], **options)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=b'{"model":"m","prompt":"hi"}'))
    silent.wait_for_requests()
    client.close()
    eventually(lambda: "vllm_router_pd_cancelled_total{" in router.server.metrics_text(), "a departure")
    assert silent.connections[0].ended is None
    silent.connections[0].wait_ended()
    router.must_rest()
