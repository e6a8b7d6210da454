"""cpp/proxy/disaggregation/pair_choice.h: which pair. Groups: tests/proxy/test_pd.py and its neighbours."""

from tests.fakes.harness import error_of
from tests.fakes.pd import WHOLE
from tests.fakes.wire import response

BODY = b'{"prompt":"hi"}'


def prefill_of(harness):
    return harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))


def test_both_stages_share_the_requests_out(harness):
    prefills = [prefill_of(harness) for _ in range(2)]
    decodes = [harness.worker() for _ in range(2)]
    routing = {
        "prefill_urls": [one.url for one in prefills],
        "decode_urls": [one.url for one in decodes],
    }
    client = harness.client(harness.router(routing=routing))
    for _ in range(4):
        assert client.ask("POST", "/v1/completions", body=BODY).body == b"hello"
    assert [len(one.requests) for one in prefills + decodes] == [2] * 4


def test_without_a_decode_worker_prefill_gets_nothing(harness):
    prefill = prefill_of(harness)
    router = harness.router(routing={"prefill_urls": [prefill.url]})
    failed = harness.client(router).ask("POST", "/v1/completions", body=BODY)
    assert (failed.status, error_of(failed)["code"]) == (503, "no_workers")
    assert prefill.requests == []
    assert router.loads() == [0]
