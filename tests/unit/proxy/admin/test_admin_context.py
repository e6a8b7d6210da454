"""cpp/proxy/admin/admin_context.h: an endpoint of a service that the server does not have says so."""

from tests.fakes.harness import error_of


def test_an_endpoint_of_a_service_that_is_off_says_so(harness):
    client = harness.client(harness.router(harness.worker()))
    assert error_of(client.ask("GET", "/ha/status"))["message"].startswith("This router shares nothing")
    answer = client.ask("POST", "/admin/kv-events/push", body=b"{}")
    assert (answer.status, error_of(answer)["code"]) == (404, "not_found")
