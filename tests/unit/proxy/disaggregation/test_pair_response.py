"""cpp/proxy/disaggregation/pair_response.h: whose response the client gets. Merged ones: test_pd.py."""

import pytest

from tests.fakes.pd import ask, handing_over, responding, staged


@pytest.mark.parametrize("stage", ["prefill", "decode"])
@pytest.mark.parametrize("status", [400, 429, 500])
def test_the_last_response_of_a_stage_is_the_clients_if_no_other_follows(harness, stage, status):
    failing = responding(harness, status, b"its text")
    prefill = failing if stage == "prefill" else handing_over(harness)
    decode = failing if stage == "decode" else harness.worker()
    answer = ask(harness.client(staged(harness, [prefill], [decode])))
    assert (answer.status, answer.body) == (status, b"its text")


def test_a_response_of_an_attempt_that_another_follows_is_no_clients(harness):
    busy = responding(harness, 429, b"its text")
    router = staged(harness, [handing_over(harness)], [busy, harness.worker()])
    client = harness.client(router)
    while not busy.posts:  # which worker is first is the policy's choice
        assert ask(client).body == b"hello"


def test_the_response_has_the_decode_workers_connection(harness):
    """It returns to the pool once it has been relayed, as a single worker's does."""
    decode = harness.worker()
    client = harness.client(staged(harness, [handing_over(harness)], [decode]))
    for _ in range(3):
        assert ask(client).body == b"hello"
    assert len(decode.connections) == 1
