"""cpp/proxy/thread/breaker_transitions.h:
what log, metrics and fleet are told when a breaker changes its state.
"""

from tests.fakes.wire import response


def test_a_change_is_logged_counted_and_published_at_once(harness, capfd):
    failing = harness.worker(lambda connection, _: connection.send(response(500, b"")))
    healthy = harness.worker()
    router = harness.router(failing, healthy, disable_circuit_breaker=False, cb_failure_threshold=2)
    client = harness.client(router)
    while len(failing.requests) < 2:
        client.ask("POST", "/v1/completions", body=b"{}")
    assert [client.ask("POST", "/v1/completions", body=b"{}").status for _ in range(4)] == [200] * 4
    moved = [
        line
        for line in router.server.metrics_text().splitlines()
        if line.startswith("vllm_router_cb_state_transitions_total{") and failing.url in line
    ]
    assert [line.rsplit(" ", 1)[1] for line in moved if 'to="open"' in line and 'from="closed"' in line] == [
        "1"
    ]
    assert capfd.readouterr().err.count("circuit breaker closed -> open") == 1
