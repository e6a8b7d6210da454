"""cpp/proxy/thread/delegated_requests.h: features see requests of gateways as they see the proxy's."""

import json

import pytest

from tests.fakes.data_plane import chat, planes, post, response_head
from tests.fakes.held_out import PERCENT, secret_file
from tests.fakes.wire import eventually


@pytest.fixture
def data_plane(harness):
    yield from planes(harness)


def test_a_request_at_a_gateway_has_a_receipt(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0, receipt_detail_every=1)
    stream = data_plane(router).stream()
    stream.send(*post(chat("hello"), fields={"x-request-id": "of-a-gateway"}))
    stream.choice()
    stream.send(response_head(201, end=True))
    stream.close()
    client = harness.client(router)
    eventually(lambda: client.ask("GET", "/admin/receipts/of-a-gateway").status == 200)
    receipt = json.loads(client.ask("GET", "/admin/receipts/of-a-gateway").body)
    assert (receipt["worker"], receipt["status"], receipt["attempts"]) == (worker.url, 201, 1)
    assert receipt["policy"] == router.core.policy
    assert [candidate["worker"] for candidate in receipt["candidates"]] == [worker.url]


def test_conversations_at_a_gateway_are_held_out(harness, data_plane, tmp_path):
    """Some of them are, and each has its arm in all its turns."""
    workers = [harness.worker() for _ in range(2)]
    held_out = {"holdout_percent": PERCENT, "holdout_secret_file": secret_file(tmp_path)}
    plane = data_plane(router := harness.router(*workers, policy="cache_aware", epp_port=0, **held_out))
    for turn in range(2):
        for number in range(60):
            fields = {"x-request-id": f"{number}-{turn}", "x-session-id": f"session {number}"}
            plane.pick(*post(chat(f"turn {turn}"), fields=fields))
    client = harness.client(router)

    def arms():
        receipts = json.loads(client.ask("GET", "/admin/receipts?last=120").body)["receipts"]
        return {receipt["request_id"]: receipt["arm"] for receipt in receipts}

    eventually(lambda: len(arms()) == 120)
    found = arms()
    assert {found[f"{number}-0"] for number in range(60)} == {"policy", "holdout"}
    assert [found[f"{number}-0"] for number in range(60)] == [found[f"{number}-1"] for number in range(60)]


def test_without_features_a_request_is_picked_all_the_same(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0, routing={"receipts": 0})
    assert data_plane(router).pick(*post(chat("hello"))) == worker.authority
