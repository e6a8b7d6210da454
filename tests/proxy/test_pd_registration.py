"""Prefill and decode workers that register themselves, and pairs of them (--vllm-discovery-address)."""

import json
import re

import msgpack
import pytest

from tests.fakes.harness import error_of
from tests.fakes.pd import prefill_response
from tests.fakes.registrant import BODY, D_ZMQ, P_ZMQ, SERVED, Engine, packed, pair, starting
from tests.fakes.wire import eventually, request, response
from tests.proxy.test_pd import P_BASE, labelled, post

READ = {"remote_engine_id": "e", "remote_block_ids": [[1, 2]], "future": 12345678901234567890}
GARBAGE = [b"", b"\x00", b"HELLO", b"{" * 100, b"\xdf\xff\xff\xff\xff", msgpack.packb({"type": "P"})]


@pytest.fixture
def start(harness):
    with starting(harness) as start:
        yield start


def must_name_both(*engines):
    ids = {one for engine in engines for one in engine.ids}
    assert len(ids) == 1
    assert re.fullmatch(rf"___prefill_addr_{P_ZMQ}___decode_addr_{D_ZMQ}_[0-9a-f]{{32}}", ids.pop())


# ---- what both workers of a pair are told


def test_p2p_nccl_workers_find_each_other_by_the_request_id(harness, start):
    fleet, p, d = pair(harness, start)
    answer = post(fleet.admin, BODY)
    assert (answer.status, answer.body) == (200, SERVED)
    must_name_both(p, d)
    assert p.bodies[0].pop("kv_transfer_params") == P_BASE
    assert p.bodies == [{**BODY, "max_tokens": 1, "stream": False}]
    assert d.bodies == [BODY]
    # Addresses are not hidden from those that need them.
    fleet, p, d = pair(harness, start, pd_request_id="plain")
    assert post(fleet.admin, BODY).status == 200
    must_name_both(p, d)


def test_moriio_read_goes_through_prefill_first_and_tells_both_the_others_sizes(harness, start):
    fleet, p, d = pair(
        harness,
        start,
        connector="moriio",
        parameters=READ,
        prefill={"transfer_mode": "READ", "tp_size": 8, "dp_size": 2},
        decode={"transfer_mode": "READ", "tp_size": 4},
    )
    assert post(fleet.admin, BODY).body == SERVED
    must_name_both(p, d)
    (of_p,), (of_d,) = [[one["kv_transfer_params"] for one in engine.bodies] for engine in (p, d)]
    tx = of_p["transfer_id"]
    assert re.fullmatch(r"tx-[0-9a-f]{32}", tx)
    assert of_p == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "transfer_id": tx,
        "remote_dp_size": 1,
    }
    rank = of_d.pop("remote_dp_rank")
    assert rank in (0, 1)
    assert of_d == {**READ, "remote_dp_size": 2, "remote_tp_size": 8, "transfer_id": tx}
    assert labelled(fleet.router, "pd_claims_total", "end") == {"redeemed": 1}


def test_moriio_write_tells_both_at_once(harness, start):
    write = {"transfer_mode": "WRITE"}
    fleet, p, d = pair(
        harness,
        start,
        connector="moriio",
        parameters=None,
        prefill={**write, "tp_size": 8},
        decode={**write, "tp_size": 4, "dp_size": 2},
        gated=True,
    )
    client = harness.client(fleet.router)
    assert post(client, BODY).body == SERVED  # prefill's response is still to come
    p.gate.wait_for_someone()
    p.gate.open()
    must_name_both(p, d)
    of_p, of_d = p.bodies[0]["kv_transfer_params"], d.bodies[0]["kv_transfer_params"]
    tx = of_p["transfer_id"]
    assert of_p.pop("remote_dp_rank") in (0, 1)
    assert of_p == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "transfer_id": tx,
        "remote_dp_size": 2,
        "remote_tp_size": 4,
    }
    assert of_d == {
        "do_remote_decode": False,
        "do_remote_prefill": True,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "transfer_id": tx,
        "remote_dp_size": 1,
        "remote_tp_size": 8,
    }


def test_each_rank_of_a_worker_is_one(harness, start):
    fleet, _, d = pair(harness, start, decode={"dp_size": 3})
    urls = {url for url, kind in fleet.workers().items() if kind == "decode"}
    assert urls == {f"{d.url}@{rank}" for rank in range(3)}
    for _ in range(6):
        assert post(fleet.admin, BODY).status == 200
    ranks = [one.get("x-data-parallel-rank") for one in d.worker.requests if one.method == "POST"]
    assert sorted(ranks) == ["0", "0", "1", "1", "2", "2"]


def test_a_worker_that_has_not_registered_gets_no_half_of_a_pair(harness, start):
    """Added by hand: MoRI-IO cannot find it, and decode computes no prompt. It is not chosen."""
    fleet = start(connector="moriio")
    d, p, added = Engine(harness, SERVED), Engine(harness, prefill_response(READ)), Engine(harness, SERVED)
    fleet.join("D", d, D_ZMQ, transfer_mode="READ")
    fleet.router.core.add_worker(added.url, worker_type="prefill")
    fleet.wait_for(1, 1)
    message = post(fleet.admin, BODY)
    assert message.status == 503
    assert error_of(message)["message"] == (
        "No workers available: 0 prefill, 1 decode; 1 worker is not chosen: the ZMQ address is not known: "
        "the worker was added, and has not registered (--vllm-discovery-address)"
    )
    rows = {row["url"]: row for row in json.loads(fleet.admin.ask("GET", "/workers").body)["workers"]}
    assert [url for url, row in rows.items() if "not_chosen" in row] == [added.url]
    fleet.join("P", p, P_ZMQ, transfer_mode="READ")
    fleet.wait_for(2, 1)
    for _ in range(4):
        assert post(fleet.admin, BODY).body == SERVED
    assert (added.bodies, len(p.bodies), len(d.bodies)) == ([], 4, 4)


# ---- joining and leaving


def test_the_router_waits_for_both_stages(harness, start):
    fleet = start(connector="moriio")

    def must_wait(prefill, decode):
        waiting = f"Waiting for discovered workers: {prefill} prefill, {decode} decode"
        health = fleet.admin.ask("GET", "/health")
        assert (health.status, health.body.decode()) == (503, waiting)
        ready = fleet.admin.ask("GET", "/readiness")
        assert (ready.status, json.loads(ready.body)["reason"]) == (503, waiting)

    must_wait(0, 0)
    answer = post(fleet.admin, BODY)
    assert (answer.status, error_of(answer)["message"]) == (503, "no MoRI-IO worker has registered")
    fleet.join("P", harness.worker(), P_ZMQ, transfer_mode="READ")
    fleet.wait_for(1, 0)
    must_wait(1, 0)
    answer = post(fleet.admin, BODY)
    assert error_of(answer)["message"] == "No workers available: 1 prefill, 0 decode"
    fleet.join("D", harness.worker(), D_ZMQ, transfer_mode="READ")
    fleet.wait_for(1, 1)
    assert fleet.admin.ask("GET", "/readiness").status == 200
    assert fleet.admin.ask("GET", "/health").status == 200


def test_a_worker_joins_only_when_it_passes_its_health_check(harness, start):
    fleet = start(health_check_interval_secs=60)
    ill = harness.worker(lambda connection, _: connection.send(response(500)))
    fleet.join("P", ill, P_ZMQ)
    ill.wait_for_requests()
    assert fleet.states() == {ill.url: "pending"}
    fleet.join("P", harness.worker(), D_ZMQ)
    fleet.wait_for(1, 0)


def test_metrics_and_admin_show_what_registered(harness, start):
    fleet, p, d = pair(
        harness,
        start,
        connector="moriio",
        parameters=READ,
        prefill={"transfer_mode": "READ", "tp_size": 8},
        decode={"transfer_mode": "READ"},
    )
    assert labelled(fleet.router, "pd_registrations", "type") == {"prefill": 1, "decode": 1}
    assert labelled(fleet.router, "pd_registration_messages_total", "result")["taken"] >= 2
    rows = {row["url"]: row for row in json.loads(fleet.admin.ask("GET", "/workers").body)["workers"]}
    shown = {name: rows[p.url][name] for name in ("zmq_address", "transfer_mode", "tp_size", "dp_size")}
    assert shown == {"zmq_address": P_ZMQ, "transfer_mode": "READ", "tp_size": 8, "dp_size": 1}
    one = next(row for row in fleet.report()["workers"] if row["http_address"] == d.authority)
    assert (one["worker_type"], one["silent"], one["peer"]) == ("decode", False, "127.0.0.1")


def test_a_silent_worker_gets_no_requests_and_comes_back(harness, start):
    """5 s of silence. What it has goes on meanwhile."""
    fleet, p, _ = pair(harness, start, gated=True)
    client = harness.client(fleet.router)
    before = {worker.url: worker for worker in fleet.router.core.workers}
    leaving = fleet._registrants[0]
    leaving.stop()
    client.send(request("POST", "/v1/completions", body=json.dumps(BODY).encode()))
    p.gate.wait_for_someone()
    eventually(lambda: fleet.states()[p.url] == "resting", "still chosen")
    assert labelled(fleet.router, "pd_registrations", "type") == {"decode": 1}
    answer = post(fleet.admin, BODY)
    assert (answer.status, error_of(answer)["message"]) == (503, "No workers available: 0 prefill, 1 decode")
    p.gate.open()
    assert client.read_response().body == SERVED  # that went on
    fleet.join("P", p, P_ZMQ)
    fleet.wait_for(1, 1)
    assert post(fleet.admin, BODY).status == 200
    assert {worker.url for worker in fleet.router.core.workers} == before.keys()


def test_a_worker_that_is_silent_for_long_is_removed_and_returns_as_a_new_one(harness, start):
    fleet, p, d = pair(harness, start, discovery_forget_secs=1.5)
    fleet._registrants[0].stop()
    fleet.wait_for(0, 1)
    eventually(lambda: fleet.states() == {d.url: "serving"}, "it is still there")
    assert post(fleet.admin, BODY).status == 503
    fleet.join("P", p, P_ZMQ)
    fleet.wait_for(1, 1)
    assert post(fleet.admin, BODY).status == 200


def test_a_worker_that_restarts_with_another_zmq_address_is_another_one(harness, start):
    fleet, p, d = pair(harness, start)
    assert post(fleet.admin, BODY).status == 200
    fleet._registrants[0].message = packed("P", p.authority, "10.0.0.1:29999")

    def names_the_new_one():  # which is checked before it joins, so there may be none for a moment
        return post(fleet.admin, BODY).status == 200 and "___prefill_addr_10.0.0.1:29999___" in p.ids[-1]

    eventually(names_the_new_one, "requests still name the old address")
    assert p.ids[-1] == d.ids[-1]
    fleet.wait_for(1, 1)


# ---- what one peer can do to the others


def test_messages_that_are_too_long_end_their_peer_alone(harness, start):
    fleet, _, _ = pair(harness, start)
    fleet.peer().send(b"x" * 5000)  # libzmq closes the connection
    fleet.peer().send(b"y" * 3000, b"z" * 3000)  # each frame is short enough
    eventually(lambda: fleet.messages("too_long") == 1, "not counted")
    assert post(fleet.admin, BODY).status == 200


def test_a_peer_that_floods_disturbs_no_requests(harness, start):
    fleet, _, _ = pair(harness, start)
    hostile = fleet.peer()
    hostile.socket.sndhwm = 1000
    count = 100_000
    for i in range(count):
        hostile.send(GARBAGE[i % len(GARBAGE)])
        if i % 5000 == 0:
            assert post(fleet.admin, BODY).status == 200
    eventually(lambda: fleet.messages("malformed") >= count * 0.99, f"{fleet.report()['messages']}")
    assert len(fleet.report()["workers"]) == 2
    assert all(state == "serving" for state in fleet.states().values())
    assert post(fleet.admin, BODY).status == 200


def test_a_peer_that_registers_thousands_leaves_the_others_in(harness, start):
    fleet, p, d = pair(harness, start, health_check_interval_secs=60)
    hostile = fleet.peer()
    for i in range(5000):
        hostile.send(packed("D", f"127.9.{i // 250}.{i % 250}:9", f"10.0.0.1:{i + 1}"))
    eventually(lambda: fleet.messages("full") >= 900, "no limit")
    assert fleet.workers() == {p.url: "prefill", d.url: "decode"}
    assert post(fleet.admin, BODY).status == 200
