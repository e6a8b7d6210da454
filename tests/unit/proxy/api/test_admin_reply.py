"""cpp/proxy/api/admin_reply.h: what an endpoint of our own answers, on the wire."""


def test_it_is_json_unless_it_says_otherwise(harness):
    client = harness.client(harness.router())
    assert client.ask("GET", "/list_workers").get("content-type") == "application/json"
    assert client.ask("GET", "/liveness").get("content-type") == "text/plain; charset=utf-8"
