"""cpp/proxy/disaggregation/kept_legs.h: how long a leg goes on alone. Prefill's limit: test_pd_memory.py."""

from tests.fakes.pd import handing_over, staged
from tests.fakes.wire import request, response

BODY = b'{"model":"m","prompt":"hi"}'


def test_decode_goes_on_to_its_first_byte_within_the_grace(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    decode = harness.worker(answer)
    gate = decode.gate()
    router = staged(harness, [handing_over(harness)], [decode], pd_grace_ms=600_000)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=BODY))
    gate.wait_for_someone()
    client.close()
    gate.open()
    router.must_rest()
    assert router.loads() == [0, 0]


def test_behind_the_grace_decode_is_closed(harness):
    decode = harness.worker(lambda connection, _: connection.ending())
    router = staged(harness, [handing_over(harness)], [decode], pd_grace_ms=1)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=BODY))
    decode.wait_for_requests()
    client.close()
    decode.connections[0].wait_ended()
    router.must_rest()
