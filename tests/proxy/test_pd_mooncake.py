"""Pairs with Mooncake: both requests at once, and the engine id of prefill's rank in decode's copy.

Rows are those of the table of failures in the design; the workers are scripted (tests/fakes/pd_mooncake.py).
"""

import json
import re

import pytest

from tests.fakes.harness import Harness, RunningRouter, error_of
from tests.fakes.pd_mooncake import (
    BODY,
    STREAM,
    Fabric,
    MooncakeDecode,
    MooncakePrefill,
    ask,
    mooncake_pair,
    mooncake_router,
    send,
    text,
    wait_until_chosen,
)
from tests.fakes.wire import chunk, eventually, response


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


@pytest.fixture
def prefill(harness: Harness, fabric: Fabric) -> MooncakePrefill:
    return MooncakePrefill(harness, fabric)


@pytest.fixture
def decode(harness: Harness, fabric: Fabric) -> MooncakeDecode:
    return MooncakeDecode(harness, fabric)


def labelled(router: RunningRouter, name: str, label: str) -> dict[str, int]:
    found = re.findall(
        rf'^vllm_router_{name}\{{.*?{label}="([^"]+)".*?\}} (\S+)$',
        router.server.metrics_text(),
        re.MULTILINE,
    )
    return {value: int(float(count)) for value, count in found}


def test_each_of_both_is_told_of_the_transfer(harness, prefill, decode):
    router = mooncake_pair(harness, prefill, decode=[decode])
    assert text(ask(harness.client(router))) == "transferred hello"
    [to_prefill], [to_decode] = prefill.posts, decode.posts
    transfer = to_prefill["kv_transfer_params"]["transfer_id"]
    assert re.fullmatch(r"xfer-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", transfer)
    assert to_prefill == {
        "max_tokens": 1,
        "stream": False,
        "ignore_eos": True,
        "kv_transfer_params": {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "transfer_id": transfer,
        },
        "model": "m",
        "prompt": "hello",
    }
    assert to_decode == BODY | {
        "kv_transfer_params": {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            "transfer_id": transfer,
            "remote_bootstrap_addr": f"http://127.0.0.1:{prefill.port}",
            "remote_engine_id": prefill.engines[0],
        }
    }
    ids = {
        one.get("x-request-id") for worker in (prefill, decode) for one in worker.worker.requests if one.body
    }
    assert len(ids) == 1


def test_a_transfer_has_an_id_of_its_own(harness, prefill, decode):
    client = harness.client(mooncake_pair(harness, prefill, decode=[decode]))
    assert [text(ask(client, prompt=f"p{i}")) for i in range(20)] == [f"transferred p{i}" for i in range(20)]
    assert len({one["kv_transfer_params"]["transfer_id"] for one in prefill.posts}) == 20


def test_both_are_sent_before_either_responds(harness, prefill, decode):
    gate = prefill.shut()
    router = mooncake_pair(harness, prefill, decode=[decode])
    client = harness.client(router)
    send(client, stream=True)
    gate.wait_for_someone()
    # Decode's whole response reaches the client while prefill's is shut.
    message = client.read_response()
    assert message.body == b"data: transferred hello\n\ndata: [DONE]\n\n"
    gate.open()


def test_both_are_sent_although_decode_says_nothing(harness, fabric):
    gates = []

    def answer(connection, message):
        if message.method == "POST":
            gates[0].wait()
        connection.send(response(200, b"{}"))

    decode = harness.worker(answer)
    gates.append(decode.gate())
    prefill = MooncakePrefill(harness, fabric)
    shut = prefill.shut()
    router = mooncake_pair(harness, prefill, decode=[decode])
    client = harness.client(router)
    send(client)
    gates[0].wait_for_someone()
    shut.wait_for_someone()
    gates[0].open()
    shut.open()
    assert client.read_response().status == 200


# ---- failures


def test_row_23_a_prefill_that_fails_aborts_what_decode_has_begun(harness, prefill, decode):
    shut, go_on = prefill.shut(), decode.shut()
    router = mooncake_pair(harness, prefill, decode=[decode])
    client = harness.client(router)
    send(client, stream=True)
    go_on.wait_for_someone()
    eventually(lambda: router.loads() == [1, 1], "both have the request")
    head = client.read_head()
    assert head.status == 200
    prefill.status = 500
    shut.open()
    assert b"[DONE]" not in client.read_to_end()
    router.must_rest()
    go_on.open()
    assert len(prefill.posts) == len(decode.posts) == 1


def test_row_24_a_prefill_that_is_lost_leaves_what_decode_has_begun(harness, decode, fabric):
    begun = []

    class Lost(MooncakePrefill):
        def _answer(self, connection, message):
            if message.method == "POST":
                body = json.loads(message.body)
                self._send_blocks(body, 0)
                begun[0].wait()
                connection.reset()
                return
            super()._answer(connection, message)

    prefill = Lost(harness, fabric)
    begun.append(prefill.worker.gate())
    go_on = decode.shut()
    router = mooncake_pair(harness, prefill, decode=[decode])
    client = harness.client(router)
    send(client, stream=True)
    go_on.wait_for_someone()
    assert client.read_head().status == 200
    begun[0].open()
    eventually(lambda: router.loads() == [0, 1], "prefill's load")
    go_on.open()
    assert client.read_to_last_chunk().endswith(b"data: [DONE]\n\n")


def test_row_25_a_prefill_that_never_responds_is_closed_behind_a_complete_response(harness, prefill, decode):
    gate = prefill.shut()
    router = mooncake_pair(harness, prefill, decode=[decode])
    client = harness.client(router)
    assert text(ask(client)) == "transferred hello"
    router.must_rest()  # within a second, while the gate is shut
    gate.open()


def test_row_28_a_rank_without_an_engine_id_is_not_chosen(harness, fabric, decode):
    prefill = MooncakePrefill(harness, fabric, ranks=2)
    del prefill.engines[0]
    routing = {
        "prefill_urls": [(f"{prefill.url}@0", prefill.port), (f"{prefill.url}@1", prefill.port)],
        "decode_urls": [decode.url],
    }
    router = harness.router(routing=routing, kv_connector="mooncake")
    wait_until_chosen(router, harness, 1)
    client = harness.client(router)
    for _ in range(4):
        assert text(ask(client)) == "transferred hello"
    assert {one.get("x-data-parallel-rank") for one in prefill.worker.requests if one.body} == {"1"}
    listed = json.loads(client.ask("GET", "/workers").body)["workers"]
    assert "engine id is not known" in listed[0]["not_chosen"]
    assert (listed[1]["engine_id"], "not_chosen" in listed[1]) == (prefill.engines[1], False)


def test_each_rank_is_named_by_its_own_engine(harness, fabric, decode):
    prefill = MooncakePrefill(harness, fabric, ranks=2)
    routing = {
        "prefill_urls": [(f"{prefill.url}@{rank}", prefill.port) for rank in (0, 1)],
        "decode_urls": [decode.url],
    }
    router = harness.router(routing=routing, kv_connector="mooncake")
    wait_until_chosen(router, harness, 2)
    client = harness.client(router)
    for _ in range(4):
        assert text(ask(client)) == "transferred hello"
    told = {one["kv_transfer_params"]["remote_engine_id"] for one in decode.posts}
    assert told == set(prefill.engines.values())


def test_without_an_engine_id_there_is_no_pair(harness, prefill, decode):
    prefill.query = b"{}"
    router = mooncake_router(harness, [prefill], [decode])
    eventually(lambda: prefill.queries != [])
    client = harness.client(router)
    message = ask(client)
    assert message.status == 503
    said = error_of(message)["message"]
    assert said.startswith("No workers available: 0 prefill, 1 decode; 1 worker is not chosen")
    assert "GET /query" in said
    ready = client.ask("GET", "/readiness")
    assert ready.status == 503
    assert "GET /query" in json.loads(ready.body)["reason"]
    assert prefill.posts == decode.posts == []
    prefill.query = None
    wait_until_chosen(router, harness)
    assert text(ask(client)) == "transferred hello"


def test_row_29_a_prefill_that_has_started_anew_is_asked_at_once(harness, prefill, decode):
    router = mooncake_pair(harness, prefill, decode=[decode])
    client = harness.client(router)
    assert text(ask(client)) == "transferred hello"
    old = prefill.engines[0]
    prefill.restart()
    assert text(ask(client)) == "local hello"  # no other pair, so decode alone
    assert [one.get("kv_transfer_params", {}).get("remote_engine_id") for one in decode.posts] == [
        old,
        old,
        None,
    ]
    eventually(lambda: len(prefill.queries) == 2, "it was not asked again")

    def is_known() -> bool:
        listed = json.loads(client.ask("GET", "/workers").body)["workers"]
        return bool(listed[0].get("engine_id") == prefill.engines[0])

    eventually(is_known, "the new id")
    assert text(ask(client)) == "transferred hello"
    assert labelled(router, "pd_bootstrap_queries_total", "result") == {"ok": 2}


def test_decode_that_always_fails_makes_no_more_than_a_query_a_second(harness, prefill, decode):
    decode.failing = True
    router = mooncake_pair(harness, prefill, decode=[decode], retry_budget=1.0)
    client = harness.client(router)
    for _ in range(50):
        assert text(ask(client)) == "local hello"
    # One when it joined, one at once, and those of the seconds that this took.
    assert len(prefill.queries) < 12
    assert len(decode.posts) == 100


def test_a_rejected_request_makes_no_query(harness, prefill):
    rejecting = harness.worker(lambda connection, _: connection.send(response(400, b"{}")))
    router = mooncake_pair(harness, prefill, decode=[rejecting])
    client = harness.client(router)
    for _ in range(3):
        assert ask(client).status == 400
    assert len(prefill.queries) == 1


# ---- departures


def test_a_client_that_leaves_before_a_byte_leaves_prefill_to_its_end(harness, prefill):
    def answer(connection, message):
        if message.method == "POST":
            held[0].wait()
        connection.send(response(200, b"{}"))

    held = []
    decode = harness.worker(answer)
    held.append(decode.gate())
    shut = prefill.shut()
    router = mooncake_pair(harness, prefill, decode=[decode], pd_grace_ms=50)
    client = harness.client(router)
    send(client)
    held[0].wait_for_someone()
    shut.wait_for_someone()
    client.close()
    eventually(lambda: router.loads() == [1, 0], "decode is closed after the grace, prefill is not")
    shut.open()
    router.must_rest()
    held[0].open()


def test_a_client_that_leaves_while_decode_writes_leaves_prefill_to_its_end(harness, prefill, decode):
    shut, go_on = prefill.shut(), decode.shut()
    router = mooncake_pair(harness, prefill, decode=[decode])
    client = harness.client(router)
    send(client, stream=True)
    go_on.wait_for_someone()
    assert client.read_head().status == 200
    client.close()
    eventually(lambda: router.loads() == [1, 0], "decode is closed at once, prefill is not")
    shut.open()
    router.must_rest()
    go_on.open()


def test_a_client_that_leaves_behind_prefills_end_lets_decode_begin(harness, prefill):
    held = []

    def answer(connection, message):
        if message.method == "POST":
            held[0].wait()
            connection.send(STREAM + chunk(b"data: 1\n\n"))
            connection.ending()
            return
        connection.send(response(200, b"{}"))

    decode = harness.worker(answer)
    held.append(decode.gate())
    router = mooncake_pair(harness, prefill, decode=[decode], pd_grace_ms=10_000)
    client = harness.client(router)
    send(client, stream=True)
    held[0].wait_for_someone()
    eventually(lambda: router.loads() == [0, 1], "prefill has ended")
    client.close()
    held[0].open()  # its first byte ends it, long before the grace
    eventually(lambda: router.loads() == [0, 0], patience=5)
