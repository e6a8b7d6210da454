"""cpp/proxy/thread/own_endpoints.h: connections of every listener reach the same endpoints."""


def test_every_listener_that_serves_an_endpoint_gives_the_same_response(harness):
    router = harness.router(admin_port=0, threads=2)
    clients = [harness.client(router) for _ in range(4)] + [harness.client_at(router.server.admin_port)]
    responses = {client.ask("GET", "/health").body for client in clients}
    assert responses == {b"All servers healthy"}
