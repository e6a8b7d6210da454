"""cpp/proxy/disaggregation/pd_registration_service.h: what is taken of workers, and where they register."""

import msgpack
import pytest

from tests.fakes.registrant import BODY, P_ZMQ, packed, pair, starting
from tests.fakes.wire import eventually
from tests.proxy.test_pd import post

SIZES = {"remote_engine_id": "e", "remote_block_ids": [[1, 2]]}


@pytest.fixture
def start(harness):
    with starting(harness) as start:
        yield start


def test_a_worker_is_of_one_stage(harness, start):
    fleet, p, _ = pair(harness, start)
    fleet.peer().send(packed("D", p.authority, P_ZMQ))
    eventually(lambda: fleet.messages("other_role") == 1, "it was not rejected")
    assert fleet.workers()[p.url] == "prefill"


def test_the_first_moriio_mode_is_the_fleets(harness, start):
    fleet, _, _ = pair(
        harness,
        start,
        connector="moriio",
        parameters=SIZES,
        prefill={"transfer_mode": "READ"},
        decode={"transfer_mode": "READ"},
    )
    peer = fleet.peer()
    peer.send(packed("P", "10.0.0.9:1", "10.0.0.9:2", transfer_mode="WRITE"))
    eventually(lambda: fleet.messages("other_mode") == 1, "it was not rejected")
    peer.send(packed("P", "10.0.0.9:1", "10.0.0.9:2"))
    eventually(lambda: fleet.messages("no_mode") == 1, "it was not rejected")
    assert len(fleet.report()["workers"]) == 2


def test_only_where_it_is_heard_from_may_a_worker_be_changed(harness, start):
    fleet, p, _ = pair(harness, start)
    fleet.peer(source="127.0.0.2").send(packed("P", p.authority, "6.6.6.6:6"))
    eventually(lambda: fleet.messages("other_peer") == 1, "it was not rejected")
    assert post(fleet.admin, BODY).status == 200
    assert P_ZMQ in p.ids[-1]


def test_two_peers_with_one_identity_are_both_heard(harness, start):
    fleet = start()
    for number in (1, 2):
        fleet.peer(identity=b"same").send(packed("P", harness.worker().authority, f"10.0.0.{number}:1"))
    fleet.wait_for(2, 0)


def test_an_allow_list_is_of_workers_and_of_senders(harness, start):
    fleet = start(vllm_discovery_allow=["127.0.0.1", "10.0.0.0/8"])
    worker = harness.worker()
    fleet.peer().send(packed("P", "192.168.0.1:8000", P_ZMQ))
    fleet.peer().send(packed("P", "vllm-0:8000", P_ZMQ))
    fleet.peer(source="127.0.0.2").send(packed("P", worker.authority, P_ZMQ))
    eventually(lambda: fleet.messages("not_allowed") == 3, "they were not rejected")
    assert fleet.states() == {}
    fleet.join("P", worker, P_ZMQ)
    fleet.wait_for(1, 0)


@pytest.mark.parametrize(("allowed", "sent"), [([], None), (["127.0.0.0/8"], "Bearer of-workers")])
def test_the_workers_key_goes_to_those_that_the_operator_named(harness, start, allowed, sent):
    fleet, p, d = pair(
        harness,
        start,
        vllm_discovery_allow=allowed,
        api_key="of-workers",
    )
    assert post(fleet.admin, BODY).status == 200
    for engine in (p, d):
        requests = [one for one in engine.worker.requests if one.method == "POST"]
        assert [one.get("authorization") for one in requests] == [sent]


def test_an_empty_frame_is_tolerated_and_hello_ignored(harness, start):
    fleet = start()
    worker = harness.worker()
    fleet.peer().send(msgpack.packb({"type": "HELLO"}))
    fleet.peer().send(b"", msgpack.packb({"type": "X", "http_address": "later"}))
    eventually(lambda: fleet.messages("ignored") == 2, "not counted")
    fleet.join("P", worker, P_ZMQ, empty_frame=True)
    fleet.wait_for(1, 0)


def test_a_worker_with_too_many_ranks_is_rejected(start):
    fleet = start()
    fleet.peer().send(packed("P", "10.0.0.1:8000", P_ZMQ, dp_size=257))
    eventually(lambda: fleet.messages("too_many_ranks") == 1, "it was not rejected")
    assert fleet.states() == {}


# ---- the address


@pytest.mark.parametrize("connector", ["moriio", "p2p_nccl"])
def test_a_connector_whose_workers_register_needs_the_address(harness, connector):
    with pytest.raises(
        ValueError, match=f"kv_connector is {connector}, whose workers register with the router"
    ):
        harness.router(
            routing={"prefill_urls": ["http://p"], "decode_urls": ["http://d"]}, kv_connector=connector
        )
