"""cpp/proxy/disaggregation/upstream_pair.h: what the two workers of one attempt are told."""

import json

from tests.fakes.pd import PARAMETERS, WHOLE
from tests.fakes.wire import response

ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}
BODY = b'{"prompt":"hi"}'


def whole(connection, _message):
    connection.send(response(200, WHOLE))


def test_both_have_one_id_and_each_attempt_another(harness):
    def answer(connection, _message):
        connection.send(response(500 if len(first.requests) + len(second.requests) == 1 else 200, b"hello"))

    prefills = [harness.worker(whole), harness.worker(whole)]
    first, second = harness.worker(answer), harness.worker(answer)
    routing = {
        "prefill_urls": [one.url for one in prefills],
        "decode_urls": [first.url, second.url],
    }
    router = harness.router(routing=routing, **ON)
    assert harness.client(router).ask("POST", "/v1/completions", body=BODY).status == 200
    ids = [
        [message.get("x-request-id") for worker in stage for message in worker.requests]
        for stage in (prefills, (first, second))
    ]
    assert sorted(ids[0]) == sorted(ids[1])
    assert len(set(ids[0])) == 2


def test_decode_gets_what_prefill_handed_over(harness):
    prefill, decode = harness.worker(whole), harness.worker()
    router = harness.router(routing={"prefill_urls": [prefill.url], "decode_urls": [decode.url]})
    assert harness.client(router).ask("POST", "/v1/completions", body=BODY).body == b"hello"
    assert json.loads(prefill.requests[0].body)["max_tokens"] == 1
    assert json.loads(decode.requests[0].body) == {"prompt": "hi", "kv_transfer_params": PARAMETERS}
