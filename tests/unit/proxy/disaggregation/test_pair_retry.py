"""cpp/proxy/disaggregation/pair_retry.h: whether another attempt follows. Each kind: test_pd.py."""

from tests.fakes.harness import error_of
from tests.fakes.pd import ask, handing_over, responding, series, staged
from tests.fakes.wire import eventually, request

BODY = b'{"model":"m","prompt":"hi"}'


def test_a_client_that_leaves_ends_the_pause(harness):
    busy = responding(harness, 429, b"busy")
    router = staged(
        harness,
        [busy],
        [harness.worker()],
        retry_initial_backoff_ms=600_000,
        retry_max_backoff_ms=600_000,
    )
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=BODY))
    busy.wait_for_requests()
    eventually(lambda: series(router, "pd_retries_total") == {"prefill": 1}, "it does not pause")
    client.close()
    router.must_rest()


def test_without_retries_there_is_one_attempt(harness):
    prefill, decode = harness.refusing_port(), harness.worker()
    router = staged(harness, [prefill], [decode], disable_retries=True)
    answer = ask(harness.client(router))
    assert (answer.status, error_of(answer)["code"]) == (502, "worker_unreachable")
    assert decode.posts == []


def test_another_kind_of_attempt_is_part_of_the_retry_that_was_granted(harness):
    """Decode alone follows a pair that has no other workers, though one retry is all there may be."""
    decode = harness.worker()
    router = staged(harness, [handing_over(harness)], [decode, harness.refusing_port()], retry_max_retries=1)
    assert ask(harness.client(router)).status == 200
