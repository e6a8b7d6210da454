"""cpp/events/source_session.h: one publisher on a real socket, and what becomes of what it sends."""

from types import SimpleNamespace

import msgpack

from tests.fakes.kv_engine import TOKENS, Engine, claim, open_router, sources, wait_for
from tests.fakes.wire import eventually
from vllm_router.testing import KvEventPublisher


def test_a_removed_block_is_not_claimed(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)))
    hashes = publisher.stored(TOKENS)
    wait_for(harness, router, gpu_blocks=4, trust="exact")
    publisher.removed(hashes[-1:])
    wait_for(harness, router, gpu_blocks=3)
    assert claim(harness, router)[0] == 3


def test_history_from_before_the_router_is_replayed(harness, publisher):
    for i in range(20):
        publisher.stored([i] * 16)
    router = open_router(harness, harness.worker(Engine(publisher)))
    source = wait_for(harness, router, trust="exact", gpu_blocks=20)
    assert source["replays"] == {"ok": 1}
    assert source["next_number"] == 20


def test_a_lost_batch_is_asked_for(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)))
    publisher.stored([1] * 16)
    wait_for(harness, router, trust="exact", gpu_blocks=1)
    publisher.drop(1)
    publisher.stored([2] * 16)
    publisher.stored([3] * 16)
    source = wait_for(harness, router, gpu_blocks=3, trust="exact", next_number=3)
    assert source["lost_batches"] == 0
    assert source["replays"]["ok"] == 2


def test_without_a_replay_endpoint_a_lost_batch_is_said(harness):
    with KvEventPublisher(replay=False) as publisher:
        router = open_router(harness, harness.worker(Engine(publisher)))
        wait_for(harness, router, connected=True)
        eventually(lambda: publisher.stored([1] * 16) and sources(harness, router)[0]["gpu_blocks"] >= 1)
        publisher.drop(1)
        publisher.stored([2] * 16)
        publisher.stored([3] * 16)
        source = wait_for(harness, router, trust="partial")
        assert source["lost_batches"] >= 1


def test_an_engine_that_restarts_is_known_afresh(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)))
    for i in range(5):
        publisher.stored([i] * 16)
    wait_for(harness, router, trust="exact", gpu_blocks=5)
    publisher.restart()
    publisher.stored([9] * 16)
    source = wait_for(harness, router, trust="exact", gpu_blocks=1)
    assert source["incarnation"] >= 1
    assert claim(harness, router, [4] * 16)[0] == 0
    assert claim(harness, router, [9] * 16)[0] == 1


def test_what_was_sent_before_a_restart_and_waits_is_not_taken_for_what_comes_after(harness, publisher):
    relay = harness.relay(SimpleNamespace(port=int(publisher.endpoint.rpartition(":")[2])))
    behind = SimpleNamespace(
        endpoint=f"tcp://127.0.0.1:{relay.port}", replay_endpoint=publisher.replay_endpoint
    )
    router = open_router(harness, harness.worker(Engine(behind)))
    wait_for(harness, router, trust="exact", connected=True)
    # They take longer than to connect again, so most of them wait when that has been done.
    removed = {"type": "BlockRemoved", "block_hashes": [1] * 1_000_000, "medium": "GPU"}
    slow = msgpack.packb([1.5, [removed], 0])
    for _ in range(60):
        publisher.garbage(slow)
    eventually(lambda: relay.passed > 30 * len(slow))
    publisher.restart()
    relay.cut()
    publisher.stored([9] * 16)
    source = wait_for(harness, router, trust="exact", gpu_blocks=1, next_number=1)
    assert source["incarnations"] == {"end_mark": 1}
    assert source["lost_batches"] == 0


def test_garbage_harms_nothing_but_the_trust(harness, publisher, other_publisher):
    bad, good = harness.worker(Engine(publisher)), harness.worker(Engine(other_publisher))
    router = open_router(harness, bad, good)
    other_publisher.stored(TOKENS)
    eventually(lambda: sum(s["gpu_blocks"] for s in sources(harness, router)) == 4)
    for _ in range(300):
        publisher.garbage(b"\xff\x00 no batch")

    def dropped():
        (source,) = [source for source in sources(harness, router) if source["worker"] == bad.url]
        return source["dropped"].get("malformed_batch", 0)

    eventually(lambda: dropped() > 0)
    assert claim(harness, router) == (4, good.url)


def test_a_message_above_the_limit_costs_the_connection_and_no_more(harness, publisher, other_publisher):
    bad, good = harness.worker(Engine(publisher)), harness.worker(Engine(other_publisher))
    router = open_router(harness, bad, good)
    eventually(lambda: [s["trust"] for s in sources(harness, router)] == ["exact", "exact"])
    publisher.garbage(b"x" * (8 * 1024 * 1024 + 1))
    eventually(lambda: sorted(s["connected"] for s in sources(harness, router)) == [False, True])
    other_publisher.stored(TOKENS)
    eventually(lambda: sum(s["gpu_blocks"] for s in sources(harness, router)) == 4)
    assert claim(harness, router) == (4, good.url)
