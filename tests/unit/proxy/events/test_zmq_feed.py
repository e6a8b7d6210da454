"""cpp/proxy/events/zmq_feed.h: sources come and go with their workers."""

from tests.fakes.kv_engine import TOKENS, Engine, open_router, sources, wait_for
from tests.fakes.wire import eventually


def test_a_source_leaves_with_its_worker_and_the_others_go_on(harness, publisher, other_publisher):
    workers = [harness.worker(Engine(one)) for one in (publisher, other_publisher)]
    router = open_router(harness, *workers)
    eventually(lambda: len(sources(harness, router)) == 2)
    router.core.remove_worker(workers[0].url)
    eventually(lambda: [source["worker"] for source in sources(harness, router)] == [workers[1].url])
    other_publisher.stored(TOKENS)
    assert wait_for(harness, router, gpu_blocks=4)["reconnects"] == 0
