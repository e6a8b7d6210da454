"""cpp/proxy/control/kv_event_service.h: which sources there are, as workers and operators say."""

import json

import pytest

from tests.fakes.kv_engine import COMPLETIONS, MODEL, TOKENS, Engine, claim, open_router, sources, wait_for
from tests.fakes.wire import eventually
from vllm_router.testing import KvEventPublisher


def test_a_named_source_needs_nothing_of_the_worker(harness, publisher):
    worker = harness.worker(Engine())
    router = open_router(
        harness,
        worker,
        kv_events="auto",
        kv_event_source=[f"{worker.url}={publisher.endpoint}"],
        kv_event_replay_source=[f"{worker.url}={publisher.replay_endpoint}"],
        kv_event_model=MODEL,
    )
    publisher.stored(TOKENS)
    wait_for(harness, router, gpu_blocks=4, trust="exact")
    assert claim(harness, router)[0] == 4


def test_off_hears_nothing(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)), kv_events="off")
    publisher.stored(TOKENS)
    assert claim(harness, router)[0] == 0
    found = json.loads(harness.client(router).ask("GET", "/admin/kv-events").body)
    assert found == {"enabled": False, "block_size": 16, "sources": []}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kv_event_source": ["http://a:1=tcp://a:1", "http://a:1=tcp://a:2"]}, "is named twice"),
        ({"kv_event_replay_source": ["http://a:1=tcp://a:1"]}, "has no kv_event_source"),
    ],
)
def test_sources_that_contradict_each_other_are_rejected(harness, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        open_router(harness, harness.worker(), **options)


def test_a_worker_names_its_publisher_with_a_wildcard(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)), kv_events="auto")
    source = wait_for(harness, router, trust="exact")
    assert source["endpoint"] == publisher.endpoint
    assert source["replay_endpoint"] == publisher.replay_endpoint
    assert source["model"] == MODEL


def test_the_model_of_the_option_counts_before_the_workers(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)), kv_event_model="alias")
    publisher.stored(TOKENS)
    assert wait_for(harness, router, gpu_blocks=4, trust="exact")["model"] == "alias"
    assert claim(harness, router, model="alias")[0] == 4


def test_a_worker_that_names_none_is_said_once(harness, capfd):
    router = open_router(harness, harness.worker(Engine()))
    eventually(lambda: "names no source of KV events" in capfd.readouterr().err)
    assert sources(harness, router) == []


def test_policies_without_an_index_hear_nothing(harness, publisher):
    engine = Engine(publisher)
    worker = harness.worker(engine)
    router = open_router(harness, worker, policy="round_robin")
    assert harness.client(router).ask("POST", COMPLETIONS, body=b"{}").status == 200
    assert "/kv_event_sources" not in [message.target for message in worker.requests]
    assert sources(harness, router) == []


def test_a_rank_hears_its_own_publisher(harness):
    with KvEventPublisher(rank=1) as publisher:
        worker = harness.worker(Engine(publisher, rank=1))
        router = open_router(harness, f"{worker.url}@0", f"{worker.url}@1")
        publisher.stored(TOKENS)
        source = wait_for(harness, router, trust="exact", gpu_blocks=4)
        assert source["worker"] == f"{worker.url}@1"
        assert claim(harness, router) == (4, f"{worker.url}@1")


def test_batches_of_another_rank_are_dropped(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher, rank=1)))
    publisher.stored(TOKENS)
    eventually(lambda: [source["dropped"] for source in sources(harness, router)] == [{"wrong_rank": 1}])
    assert claim(harness, router)[0] == 0
