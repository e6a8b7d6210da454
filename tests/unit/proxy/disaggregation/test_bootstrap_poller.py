"""cpp/proxy/disaggregation/bootstrap_poller.h: the engine ids that bootstrap servers tell, or do not."""

import json

import pytest

from tests.fakes.pd_mooncake import (
    Fabric,
    MooncakeDecode,
    MooncakePrefill,
    ask,
    mooncake_pair,
    mooncake_router,
    text,
    wait_until_chosen,
)
from tests.fakes.prometheus_text import parse
from tests.fakes.wire import eventually, response, wait_until_logged

HUGE = b'{"0":{"engine_id":"e"},"x":"' + b"x" * (1 << 20) + b'"}'


@pytest.fixture
def fabric():
    return Fabric()


@pytest.fixture
def decode(harness, fabric):
    return MooncakeDecode(harness, fabric)


def queries(router, worker):
    """By result."""
    family = parse(router.server.metrics_text()).get("vllm_router_pd_bootstrap_queries_total")
    series = family.series if family is not None else {}
    mine = [(dict(labels), value) for labels, value in series.items()]
    return {labels["result"]: int(value) for labels, value in mine if labels["worker"] == worker.url}


def listed(harness, router):
    client = harness.client(router)
    workers = json.loads(client.ask("GET", "/workers").body)["workers"]
    client.close()
    return {worker["url"]: worker for worker in workers}


@pytest.mark.parametrize(
    ("query", "result"),
    [
        (b"", "invalid"),
        (b"not JSON", "invalid"),
        (b"[1,2]", "invalid"),
        (HUGE, "invalid"),
        (b"{}", "no_id"),
        (b'{"0":null}', "no_id"),
        (b'{"0":{"engine_id":""}}', "no_id"),
        (b'{"0":{"engine_id":7}}', "no_id"),
        (b'{"1":{"engine_id":"e"}}', "no_id"),
        (b'{"00":{"engine_id":"e"}}', "no_id"),
        (lambda connection: connection.send(response(500, b'{"0":{"engine_id":"e"}}')), "invalid"),
        (lambda connection: connection.send(b"SSH-2.0\r\n"), "invalid"),
        (lambda connection: connection.reset(), "unreachable"),
    ],
)
def test_a_server_that_tells_nothing_keeps_its_worker_out_and_no_other(
    harness, fabric, decode, query, result
):
    bad, good = MooncakePrefill(harness, fabric), MooncakePrefill(harness, fabric)
    bad.query = query
    router = mooncake_router(harness, [bad, good], [decode])
    wait_until_chosen(router, harness, 1)
    client = harness.client(router)
    for _ in range(3):
        assert text(ask(client)) == "transferred hello"
    assert bad.posts == []
    eventually(lambda: set(queries(router, bad)) == {result}, "the result")
    assert "engine id is not known" in listed(harness, router)[bad.url]["not_chosen"]
    bad.query = None
    wait_until_chosen(router, harness, 2)


def test_servers_that_accept_and_are_silent_delay_no_other(harness, fabric, decode):
    held = [MooncakePrefill(harness, fabric) for _ in range(3)]
    for one in held:
        one.query = lambda connection: connection.ending()
    good = MooncakePrefill(harness, fabric)
    router = mooncake_router(harness, [*held, good], [decode], health_check_timeout_secs=100)
    wait_until_chosen(router, harness, 1)
    assert text(ask(harness.client(router))) == "transferred hello"


def test_a_silent_server_is_given_up_in_time(harness, fabric, decode):
    held = MooncakePrefill(harness, fabric)
    held.query = lambda connection: connection.ending()
    router = mooncake_router(harness, [held], [decode], health_check_timeout_secs=0.1)
    eventually(lambda: queries(router, held).get("unreachable", 0) >= 2, "it was not given up")
    held.query = None
    wait_until_chosen(router, harness, 1)


def test_a_dead_server_is_named_in_the_log(harness, decode, capfd):
    gone, prefill = harness.refusing_port(), harness.worker()
    routing = {"prefill_urls": [(prefill.url, gone.port)], "decode_urls": [decode.url]}
    harness.router(routing=routing, kv_connector="mooncake")
    wait_until_logged(capfd, f"bootstrap server http://127.0.0.1:{gone.port} has not told the engine ids")


def test_the_port_of_workers_without_one_is_the_settings(harness, fabric, decode):
    prefill = MooncakePrefill(harness, fabric)
    router = harness.router(
        routing={"prefill_urls": [prefill.url], "decode_urls": [decode.url]},
        kv_connector="mooncake",
        bootstrap_port=prefill.port,
    )
    wait_until_chosen(router, harness, 1)
    assert text(ask(harness.client(router))) == "transferred hello"
    [to_decode] = decode.posts
    address = to_decode["kv_transfer_params"]["remote_bootstrap_addr"]
    assert address == f"http://127.0.0.1:{prefill.port}"


def test_a_worker_that_is_added_is_asked_for(harness, fabric, decode):
    router = mooncake_router(harness, [], [decode])
    added = MooncakePrefill(harness, fabric)
    members = {"url": added.url, "worker_type": "prefill", "bootstrap_port": added.port}
    client = harness.client(router)
    assert client.ask("POST", "/workers", body=json.dumps(members).encode()).status == 200
    wait_until_chosen(router, harness, 1)
    assert text(ask(client)) == "transferred hello"


def test_the_workers_key_is_not_sent(harness, fabric, decode):
    prefill = MooncakePrefill(harness, fabric)
    mooncake_pair(harness, prefill, decode=[decode], api_key="secret")
    assert prefill.queries[0].get("authorization") is None


def test_an_id_is_forgotten_with_the_workers_health_and_asked_for_behind_it(harness, fabric, decode):
    health = {"status": 200}

    class Unwell(MooncakePrefill):
        def _answer(self, connection, message):
            if message.target == "/health":
                connection.send(response(health["status"], b""))
            else:
                super()._answer(connection, message)

    prefill = Unwell(harness, fabric)
    router = mooncake_pair(
        harness,
        prefill,
        decode=[decode],
        health_check_interval_secs=0.02,
        health_failure_threshold=1,
        health_success_threshold=1,
    )
    assert listed(harness, router)[prefill.url]["engine_id"] == prefill.engines[0]
    health["status"] = 500
    eventually(lambda: "engine_id" not in listed(harness, router)[prefill.url], "it was not forgotten")
    prefill.restart()
    health["status"] = 200
    wait_until_chosen(router, harness, 1)
    assert listed(harness, router)[prefill.url]["engine_id"] == prefill.engines[0]
    assert text(ask(harness.client(router))) == "transferred hello"


def test_an_id_is_dropped_if_a_transfer_failed_and_the_server_is_dead(harness, fabric, decode):
    prefill = MooncakePrefill(harness, fabric)
    router = mooncake_pair(harness, prefill, decode=[decode])
    prefill.query = lambda connection: connection.reset()
    decode.failing = True
    assert text(ask(harness.client(router))) == "local hello"
    eventually(lambda: "not_chosen" in listed(harness, router)[prefill.url], "its id was kept")


def test_a_dead_server_takes_no_id_away_while_transfers_go_well(harness, fabric, decode):
    prefill = MooncakePrefill(harness, fabric)
    router = mooncake_pair(harness, prefill, decode=[decode])
    prefill.query = lambda connection: connection.reset()
    # Another worker with the same bootstrap server has both asked for again.
    other = harness.worker()
    members = {"url": other.url, "worker_type": "prefill", "bootstrap_port": prefill.port}
    client = harness.client(router)
    assert client.ask("POST", "/workers", body=json.dumps(members).encode()).status == 200
    eventually(lambda: queries(router, prefill).get("unreachable", 0) >= 2, "it was not asked")
    assert "not_chosen" not in listed(harness, router)[prefill.url]
    assert text(ask(client)) == "transferred hello"
