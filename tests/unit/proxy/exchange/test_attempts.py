"""cpp/proxy/exchange/attempts.h: one exchange, whichever of its attempts get the response."""

from tests.fakes.wire import response


def test_the_response_of_one_worker_and_of_a_pair_is_relayed_alike(harness):
    def answer(connection, _message):
        connection.send(response(200, b"hello", ("X-Worker", "it")))

    alone = harness.router(harness.worker(answer))
    pair = harness.router(
        routing={"prefill_urls": [harness.worker().url], "decode_urls": [harness.worker(answer).url]}
    )
    messages = [
        harness.client(router).ask("POST", "/v1/completions", body=b'{"prompt":"hi"}')
        for router in (alone, pair)
    ]
    assert [(one.status, one.body, one.get("x-worker")) for one in messages] == [(200, b"hello", "it")] * 2
