"""cpp/events/event_subscriber.h: several sources, and those that end."""

import contextlib

from tests.fakes.kv_engine import TOKENS, Engine, claim, open_router, sources, wait_for
from tests.fakes.wire import eventually
from vllm_router.testing import KvEventPublisher


def test_a_dead_publisher_stops_nothing(harness, publisher):
    with contextlib.ExitStack() as stack:
        gone = stack.enter_context(KvEventPublisher())
        first, second = harness.worker(Engine(gone)), harness.worker(Engine(publisher))
        router = open_router(harness, first, second)
        publisher.stored(TOKENS)
        eventually(lambda: sum(s["gpu_blocks"] for s in sources(harness, router)) == 4)
    eventually(lambda: not all(s["connected"] for s in sources(harness, router)))
    assert claim(harness, router) == (4, second.url)


def test_a_worker_that_leaves_takes_its_source_along(harness, publisher, other_publisher):
    first, second = harness.worker(Engine(publisher)), harness.worker(Engine(other_publisher))
    router = open_router(harness, first, second)
    publisher.stored(TOKENS)
    eventually(lambda: sum(s["gpu_blocks"] for s in sources(harness, router)) == 4)
    router.core.remove_worker(first.url)
    eventually(lambda: [s["worker"] for s in sources(harness, router)] == [second.url])
    assert claim(harness, router) == (0, second.url)


def test_resync_asks_for_all_again(harness, publisher):
    worker = harness.worker(Engine(publisher))
    router = open_router(harness, worker)
    publisher.stored(TOKENS)
    wait_for(harness, router, trust="exact", gpu_blocks=4)
    client = harness.client(router)
    assert client.ask("POST", f"/admin/kv-events/resync?url={worker.url}").status == 202
    source = wait_for(harness, router, trust="exact", gpu_blocks=4, incarnation=1)
    assert source["incarnations"] == {"reset": 1}
    found = client.ask("POST", "/admin/kv-events/resync?url=http://127.0.0.1:1")
    assert found.status == 404
    assert b"has no source of KV events" in found.body


def test_many_sources_are_heard_at_once(harness):
    with contextlib.ExitStack() as stack:
        publishers = [stack.enter_context(KvEventPublisher()) for _ in range(12)]
        workers = [harness.worker(Engine(publisher)) for publisher in publishers]
        for i, publisher in enumerate(publishers):
            for j in range(i + 1):
                publisher.stored([i, j] * 8)
        router = open_router(harness, *workers)
        expected = {worker.url: i + 1 for i, worker in enumerate(workers)}
        eventually(lambda: {s["worker"]: s["gpu_blocks"] for s in sources(harness, router)} == expected)
        assert {s["trust"] for s in sources(harness, router)} == {"exact"}
