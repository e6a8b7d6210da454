"""cpp/proxy/thread/response_owners.h:
what is known of stored responses is known to all threads of a server.
"""

from tests.fakes.wire import response


def lookups(router):
    found = {}
    for line in router.server.metrics_text().splitlines():
        if line.startswith("vllm_router_response_lookups_total{"):
            series, value = line.rsplit(" ", 1)
            found[series.split('"')[1]] = float(value)
    return found


def test_an_owner_that_was_found_is_known_to_all_threads(harness):
    workers = [harness.worker(lambda connection, _: connection.send(response(404, b"{}"))) for _ in range(2)]
    holder = harness.worker(lambda connection, _: connection.send(response(200, b"{}")))
    router = harness.router(*workers, holder, threads=3)
    clients = [harness.client(router) for _ in range(12)]
    for client in clients:
        assert client.ask("GET", "/v1/responses/resp_1").status == 200
    assert len(holder.requests) == 1 + len(clients)  # one search, and the requests
    assert lookups(router) == {"known": len(clients) - 1, "found": 1, "not_found": 0, "busy": 0}
