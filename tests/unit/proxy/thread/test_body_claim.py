"""cpp/proxy/thread/body_claim.h: how a body waits for memory; which is next is the BodyBudget's business."""

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import eventually, request
from tests.proxy.test_long_bodies import HELD, POSTS, Full, held


def test_a_wait_ends_with_the_memory_or_with_the_time(harness):
    full = Full(harness, queue_timeout_secs=0.3)
    late, patient = harness.client(full.router), harness.client(full.router)
    late.send(request("POST", POSTS, ("Content-Length", str(HELD))) + b"{" * 100_000)
    assert error_of(late.read_response())["code"] == "no_body_memory"
    full.finish()
    assert patient.ask("POST", POSTS, body=b"{" * 100_000).status == 200


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_leaves_waits_no_longer_and_holds_nothing(harness, how):
    full = Full(harness)
    client = harness.client(full.router)
    client.send(request("POST", POSTS, ("Content-Length", str(HELD))) + b"{" * 100_000)
    eventually(lambda: full.router.in_flight() == 3)
    client.wait_until_received_by_peer(1)
    getattr(client, how)()
    eventually(lambda: full.router.in_flight() == 2)
    full.finish()
    assert held(full.router) == 0
