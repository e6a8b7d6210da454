"""cpp/proxy/control/hang_watch.h: a worker in doubt, and after. Also tests/proxy/test_hanging_workers.py."""

import json

from tests.proxy.test_hanging_workers import ask, clients_at, in_doubt, metric, serve_until, two_engines


def test_a_probe_of_one_request_moves_too(harness):
    """While it hangs, one request at a time goes there, and its client gets a response all the same."""
    (hung, other), router, client = two_engines(harness)
    waiting = clients_at(harness, router, hung)
    serve_until(client, other, lambda: in_doubt(router, hung))
    for asking in waiting:
        assert asking.read_response().status == 200
    before = hung.begun
    serve_until(client, other, lambda: hung.begun > before)
    assert in_doubt(router, hung)
    assert hung.begun == before + 1
    hung.gate.open()


def test_no_breaker_opens_for_it(harness):
    options = {"disable_circuit_breaker": False, "cb_failure_threshold": 1}
    (hung, other), router, client = two_engines(harness, **options)
    waiting = clients_at(harness, router, hung, 4)
    serve_until(client, other, lambda: in_doubt(router, hung))
    assert [asking.read_response().status for asking in waiting] == [200] * 4
    assert metric(router, "cb_state", hung.worker) == 0
    hung.gate.open()


def test_a_factor_of_zero_turns_it_off(harness):
    (hung, other), router, client = two_engines(harness, hang_detection_factor=0)
    waiting = clients_at(harness, router, hung)
    for _ in range(100):
        assert ask(client, other).status == 200
    assert not in_doubt(router, hung)
    hung.gate.open()
    assert [asking.read_response().status for asking in waiting] == [200, 200]


def test_workers_lists_it(harness):
    (hung, other), router, client = two_engines(harness)
    clients_at(harness, router, hung)
    serve_until(client, other, lambda: in_doubt(router, hung))
    rows = json.loads(client.ask("GET", "/workers").body)["workers"]
    assert {row["url"]: row.get("in_doubt") for row in rows} == {hung.url: True, other.url: None}
    hung.gate.open()
