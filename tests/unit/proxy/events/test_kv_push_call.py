"""cpp/proxy/events/kv_push_call.h: KV events by POST /admin/kv-events/push."""

import json

import msgpack
import pytest

from tests.fakes.wire import eventually

PATH = "/admin/kv-events/push"
IDS = [*range(64)]


def stored(hashes, ids, parent=None):
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": ids,
        "block_size": 16,
    }


@pytest.fixture
def router(harness):
    workers = [harness.worker(), harness.worker()]
    router = harness.router(*workers, policy="auto", kv_events="auto", kv_events_push=True)
    router.urls = [worker.url for worker in workers]
    return router


@pytest.fixture
def push(harness, router):
    client = harness.client(router)

    def send(body=None, **members):
        if body is None:
            body = json.dumps({"worker": router.urls[0], "model": "m", **members}).encode()
        answer = client.ask("POST", PATH, body=body)
        return answer.status, json.loads(answer.body)

    return send


def matched(router):
    workers = router.core.explain(token_ids=[*IDS, 999], model="m").workers
    return [row.matched for row in sorted(workers, key=lambda row: router.urls.index(row.url))]


def test_what_is_pushed_is_matched(router, push):
    assert push(events=[stored([1, 2, 3, 4], IDS)]) == (202, {"accepted": True, "next_seq": 1})
    assert matched(router) == [4, 0]
    assert push(events=[{"type": "BlockRemoved", "block_hashes": [4]}], seq=1)[1]["next_seq"] == 2
    assert matched(router) == [3, 0]


def test_messagepack_may_name_blocks_by_bytes(router, push):
    name = b"\x01" * 32
    body = msgpack.packb(
        {"events": [stored([name], IDS[:16])], "model": "m", "worker": router.urls[1], "ts": 1.5}
    )
    assert push(body) == (202, {"accepted": True, "next_seq": 1})
    assert matched(router) == [0, 1]


def test_a_gap_is_told_and_a_reset_begins_anew(router, push):
    push(events=[stored([1, 2], IDS[:32])], seq=0)
    assert push(events=[stored([3], IDS[32:48], 2)], seq=9) == (409, {"accepted": False, "expected_seq": 1})
    assert matched(router) == [2, 0]
    assert push(events=[stored([7], IDS[:16])], seq=9, reset=True)[1] == {"accepted": True, "next_seq": 10}
    assert matched(router) == [1, 0]


def test_ranks_are_sources_and_what_is_unusable_is_told(harness, router, push):
    push(events=[stored([1], IDS[:16])], dp_rank=3, seq=5)
    status, reply = push(events=[stored([1], IDS[:24]), {"type": "BlockPolished"}])
    assert (status, reply["unusable_events"]) == (202, 2)
    answer = harness.client(router).ask("GET", "/admin/kv-events")
    first, second = json.loads(answer.body)["pushed"]
    assert (first["rank"], first["unusable_events"], first["complete"]) == (0, 2, True)
    assert (second["rank"], second["next_number"], second["gpu_blocks"], second["complete"]) == (
        3,
        6,
        1,
        False,
    )
    assert second["worker"] == router.urls[0]
    assert second["trust"] == "mismatch"


def test_a_worker_that_left_takes_no_more(router, push):
    push(events=[stored([1], IDS[:16])])
    router.core.remove_worker(router.urls[0])
    assert push(events=[])[0] == 404


def test_names_of_pushed_models_outlive_polls_of_workers(harness):
    """The names that polls find replaced those of pushed models."""
    worker = harness.worker()
    router = harness.router(worker, policy="auto", kv_events="auto", kv_events_push=True)
    router.urls = [worker.url]
    client = harness.client(router)
    body = json.dumps({"worker": worker.url, "model": "m", "events": [stored([1], IDS[:16])]}).encode()
    assert client.ask("POST", PATH, body=body).status == 202
    other = harness.worker()
    router.core.add_worker(other.url)  # a change of the fleet: its hosts are polled
    eventually(lambda: any(request.target == "/kv_event_sources" for request in other.requests))
    assert router.core.explain(token_ids=[*IDS, 999], model="m").workers[0].matched == 1


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"worker": 5}, "'worker' must be text of at most 256 bytes"),
        ({"worker": ""}, "'worker' is missing"),
        ({"model": ""}, "'model' is missing: the base model's name"),
        ({"seq": -1}, "'seq' must be a whole number"),
        ({"dp_rank": 256}, "'dp_rank' must be a data-parallel rank between 0 and 255"),
        ({"reset": 1}, "'reset' must be true or false"),
        ({"events": 5}, "'events' is no list of KV events; nothing was applied"),
        ({"events": {}}, "'events' is no list of KV events; nothing was applied"),
    ],
)
def test_wrong_members_are_named(push, members, words):
    status, reply = push(**{"events": [], **members})
    assert status == 400
    assert words in reply["error"]["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "must be a JSON object, or a MessagePack map"),
        (b"{", "the body is not JSON"),
        (b"[]", "must be a JSON object"),
        (b"\x81\xa6worker", "the body must be|'worker' must be text"),
        (b"\x81\x01\x02", "a key of the MessagePack map is no text"),
        (b'{"worker": "http://x"}', "'events' is missing"),
        (b'{"a": ' + b"[" * 33 + b"]" * 33 + b"}", "the body is not JSON|nested deeper than 16"),
        (b'{"a": ' + b"[" * 20 + b"]" * 20 + b"}", "nested deeper than 16 levels"),
    ],
)
def test_wrong_bodies_are_told(push, body, words):
    status, reply = push(body)
    assert status == 400
    assert any(word in reply["error"]["message"] for word in words.split("|"))


def test_a_body_has_a_limit(router, harness):
    answer = harness.client(router).ask("POST", PATH, body=b"{" + b" " * 262_144)
    assert answer.status == 413


def test_without_the_flag_nothing_is_taken(harness):
    client = harness.client(harness.router(harness.worker(), policy="auto"))
    answer = client.ask("POST", PATH, body=b"{}")
    assert answer.status == 404
    assert "--kv-events-push" in json.loads(answer.body)["error"]["message"]
