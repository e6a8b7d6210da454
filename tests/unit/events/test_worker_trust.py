"""cpp/events/worker_trust.h: what the sources of a worker deserve together, and workers that are silent."""

import pytest

from tests.fakes.kv_engine import TOKENS, Engine, claim, open_router, sources, wait_for
from tests.fakes.wire import eventually, wait_until_logged
from vllm_router.testing import KvEventPublisher


@pytest.fixture
def ranks():
    with KvEventPublisher() as first, KvEventPublisher(rank=1) as second:
        yield first, second


def open_ranks(harness, ranks):
    worker = harness.worker(Engine())
    live = ",".join(publisher.endpoint for publisher in ranks)
    replay = ",".join(publisher.replay_endpoint for publisher in ranks)
    return open_router(
        harness,
        worker,
        kv_event_source=[f"{worker.url}={live}"],
        kv_event_replay_source=[f"{worker.url}={replay}"],
    )


def trusts(harness, router):
    return [source["trust"] for source in sources(harness, router)]


def test_a_rank_of_no_use_does_not_condemn_the_others(harness, ranks, capfd):
    router = open_ranks(harness, ranks)
    ranks[0].stored(TOKENS)
    ranks[1].stored(TOKENS, medium="NPU")
    eventually(lambda: trusts(harness, router)[1:] == ["mismatch"])
    wait_until_logged(capfd, " is partial: ")
    assert trusts(harness, router)[0] in ("exact", "partial")
    assert claim(harness, router)[0] == 4  # by events: the worker was sent nothing


def test_ranks_of_no_use_are_a_mismatch(harness, ranks, capfd):
    router = open_ranks(harness, ranks)
    ranks[0].stored(TOKENS, medium="NPU")
    ranks[1].stored(TOKENS, medium="NPU")
    wait_until_logged(capfd, " is mismatch: more than half of its events cannot be used")
    eventually(lambda: trusts(harness, router) == ["mismatch", "mismatch"])


def test_a_worker_that_computes_and_publishes_nothing_is_silent(harness, publisher, capfd):
    router = open_router(harness, harness.worker(Engine(publisher)), kv_predict_ttl_secs=0.1)
    wait_for(harness, router, trust="exact")
    long = [*range(2000, 2320)]
    claim(harness, router, long)  # 20 new blocks, of which an engine might hold 8
    # cpp/events/worker_trust.h: kSilentNanos
    eventually(lambda: sources(harness, router)[0]["trust"] == "silent", "never silent", 30)
    assert "published nothing for 10 s while it computed about 12 new blocks" in capfd.readouterr().err
    # What was sent to it counts now.
    assert claim(harness, router, long)[0] == 20
    publisher.stored(TOKENS)
    wait_for(harness, router, trust="exact", gpu_blocks=4)


def test_a_worker_that_has_all_it_is_sent_owes_nothing(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)))
    publisher.stored(TOKENS)
    wait_for(harness, router, trust="exact", gpu_blocks=4)
    assert [claim(harness, router)[0] for _ in range(3)] == [4, 4, 4]
    assert sources(harness, router)[0]["trust"] == "exact"
