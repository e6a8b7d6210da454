"""cpp/events/event_counts.h: sources whose events cannot be used."""

from tests.fakes.kv_engine import TOKENS, Engine, claim, open_router, wait_for
from vllm_router.testing import KvEventPublisher


def test_blocks_that_the_routers_do_not_divide_are_said(harness):
    with KvEventPublisher(block_size=24) as publisher:
        router = open_router(harness, harness.worker(Engine(publisher)))
        for i in range(120):
            publisher.stored([i] * 24)
        source = wait_for(harness, router, trust="mismatch")
        assert source["dropped"]["block_size"] >= 100
        assert claim(harness, router)[0] == 0


def test_events_of_which_none_can_be_used_are_a_mismatch(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)))
    publisher.stored(TOKENS, medium="NPU")
    source = wait_for(harness, router, trust="mismatch")
    assert source["dropped"] == {"unknown_medium": 1}
    claim(harness, router)
    assert claim(harness, router)[0] == 4  # as without events
    publisher.stored(TOKENS)
    wait_for(harness, router, trust="exact", gpu_blocks=4)
