"""cpp/events/source_feed.h: what becomes of the batches of one source, and how far they are trusted."""

from tests.fakes.kv_engine import TOKENS, Engine, claim, open_router, wait_for
from vllm_router.testing import KvEventPublisher


def test_a_cleared_cache_is_empty(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)))
    publisher.stored(TOKENS)
    wait_for(harness, router, trust="exact", gpu_blocks=4)
    publisher.cleared()
    wait_for(harness, router, trust="exact", gpu_blocks=0)
    assert claim(harness, router)[0] == 0


def test_blocks_of_a_worker_may_be_larger_than_the_routers(harness):
    with KvEventPublisher(block_size=32) as publisher:
        router = open_router(harness, harness.worker(Engine(publisher)))
        publisher.stored(TOKENS)
        wait_for(harness, router, gpu_blocks=4, block_size=32)
        assert claim(harness, router)[0] == 4
        assert claim(harness, router, [*TOKENS[:40], 5, 5])[0] == 2
