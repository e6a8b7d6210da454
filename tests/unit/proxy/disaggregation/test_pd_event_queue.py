"""cpp/proxy/disaggregation/pd_event_queue.h: what an action posts follows the step."""

from tests.fakes.pd import handing_over, staged
from tests.fakes.wire import eventually, request

BODY = b'{"model":"m","prompt":"hi"}'


def test_what_keeping_a_leg_posts_is_stepped_and_ends_it(harness):
    """Without a grace, decode ends at once: its event comes amid the step of the client's departure."""
    decode = harness.worker(lambda connection, _: connection.ending())
    router = staged(harness, [handing_over(harness)], [decode], pd_grace_ms=0)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=BODY))
    decode.wait_for_requests()
    client.close()
    decode.connections[0].wait_ended()
    router.must_rest()


def test_events_of_several_legs_in_a_row_are_all_stepped(harness):
    """Each attempt's failure posts while the last one's actions are done; the client gets one response."""
    router = staged(harness, [handing_over(harness)], [harness.refusing_port(), harness.worker()])
    client = harness.client(router)
    for _ in range(4):
        assert client.ask("POST", "/v1/completions", body=BODY).body == b"hello"
    eventually(lambda: router.loads() == [0, 0, 0], "load that nobody returned")
