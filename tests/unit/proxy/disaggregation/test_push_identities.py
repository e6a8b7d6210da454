"""cpp/proxy/disaggregation/push_identities.h: prefill workers that push are known by their responses."""

import json

from tests.fakes.pd import PARAMETERS, prefill_response
from tests.fakes.wire import eventually, request, response

WHOLE = prefill_response(PARAMETERS | {"tp_size": 2, "transfer_mode": "push"})
BODY = b'{"prompt":"hi"}'


def test_the_first_request_is_serial_and_later_ones_are_concurrent(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, WHOLE))

    prefill, decode = harness.worker(answer), harness.worker()
    gate = prefill.gate()
    routing = {"prefill_urls": [prefill.url], "decode_urls": [decode.url]}
    client = harness.client(harness.router(routing=routing, kv_connector="nixl_push"))
    client.send(request("POST", "/v1/completions", body=BODY))
    gate.wait_for_someone()
    assert decode.requests == []
    gate.open()
    assert client.read_response().body == b"hello"

    closed = prefill.gate()
    prefill.answer = lambda connection, _message: (closed.wait(), connection.send(response(200, WHOLE)))
    client.send(request("POST", "/v1/completions", body=BODY))
    closed.wait_for_someone()
    eventually(lambda: len(decode.requests) == 2, "decode waits for prefill's response")
    told = json.loads(decode.requests[1].body)["kv_transfer_params"]
    assert (told["remote_engine_id"], told["remote_host"], told["remote_port"]) == ("e", "h", 1)
    assert client.read_response().body == b"hello"  # though prefill is not done
    closed.open()
