"""cpp/proxy/events/kv_event_service.h: which sources there are, as workers and operators say."""

import json

import pytest

from tests.fakes.kv_engine import (
    COMPLETIONS,
    MODEL,
    TOKENS,
    Engine,
    claim,
    client_of,
    open_router,
    sources,
    wait_for,
)
from tests.fakes.wire import eventually, response, wait_until_logged
from vllm_router import _core_testing as testing
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
    assert found == {"enabled": False, "block_size": 16, "sources": [], "pushed": []}


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
    wait_until_logged(capfd, "names no source of KV events")
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


class Failing(Engine):
    """An engine whose first response to each of these paths is an error."""

    def __init__(self, publisher, *paths, status=503):
        super().__init__(publisher)
        self.failures = dict.fromkeys(paths, 1)
        self.status = status

    def __call__(self, connection, message):
        if self.failures.get(message.target, 0) > 0:
            self.failures[message.target] -= 1
            connection.send(response(self.status, b"{}"))
        else:
            super().__call__(connection, message)


@pytest.mark.parametrize("path", ["/kv_event_sources", "/v1/models"])
@pytest.mark.parametrize("status", [401, 429, 503])
def test_an_error_is_no_sign_that_there_is_no_source(harness, publisher, path, status):
    router = open_router(harness, harness.worker(Failing(publisher, path, status=status)))
    publisher.stored(TOKENS)
    eventually(lambda: any(s["gpu_blocks"] == 4 for s in sources(harness, router)), "never heard", 30)
    assert claim(harness, router)[0] == 4


def test_a_worker_that_names_no_model_is_not_heard(harness, publisher, capfd):
    router = open_router(harness, harness.worker(Failing(publisher, "/v1/models", status=404)))
    wait_until_logged(capfd, "names no model in /v1/models")
    assert claim(harness, router)[0] in (0, 4)


def test_a_prompt_without_token_ids_is_counted_and_said(harness, publisher, capfd):
    engine = Failing(publisher, status=404)
    engine.failures["/tokenize"] = 99
    router = open_router(harness, harness.worker(engine))
    publisher.stored(TOKENS)
    wait_for(harness, router, gpu_blocks=4, trust="exact")
    assert claim(harness, router)[0] == 4
    unmatched = 'vllm_router_kv_events_unmatched_prompts_total{cause="no_token_ids"}'
    assert f"{unmatched} 0" in router.server.metrics_text()
    text = {"model": "m", "prompt": "a text that is long enough for two blocks of bytes " * 4}
    for _ in range(2):
        client_of(harness, router).ask("POST", COMPLETIONS, body=json.dumps(text).encode())
    assert f"{unmatched} 2" in router.server.metrics_text()
    wait_until_logged(capfd, "matched by what was sent to workers, not by KV events")


def test_hosts_may_have_a_models_names_in_any_order(harness, publisher, other_publisher):
    class Reversed(Engine):
        def __call__(self, connection, message):
            if message.target == "/v1/models":
                models = {"data": [{"id": "other-name"}, {"id": MODEL}]}
                connection.send(response(200, json.dumps(models).encode()))
            else:
                super().__call__(connection, message)

    first, second = harness.worker(Engine(publisher)), harness.worker(Reversed(other_publisher))
    router = open_router(harness, first, second)
    publisher.stored(TOKENS)
    other_publisher.stored([5] * 32)
    eventually(lambda: sum(s["gpu_blocks"] for s in sources(harness, router)) == 6)
    eventually(lambda: claim(harness, router) == (4, first.url))
    assert claim(harness, router, [5] * 32) == (2, second.url)
    assert claim(harness, router, [5] * 32, model="other-name") == (2, second.url)


@pytest.mark.parametrize("endpoint", ["tcp://10.1.2.3:80", "ipc:///var/run/docker.sock", "tcp://other:5557"])
def test_a_worker_may_name_its_own_host_only(harness, publisher, endpoint):
    class Pointing(Engine):
        def report(self):
            return {"0": {"publisher": "zmq", "endpoint": endpoint}, "1": super().report()["0"]}

    router = open_router(harness, harness.worker(Pointing(publisher)))
    eventually(lambda: [s["endpoint"] for s in sources(harness, router)] == [publisher.endpoint])


def test_a_rank_that_is_named_twice_counts_once(harness, publisher):
    class Repeating(Engine):
        def report(self):
            return {"0" * (1 + i): super(Repeating, self).report()["0"] for i in range(300)}

    router = open_router(harness, harness.worker(Repeating(publisher)))
    publisher.stored(TOKENS)
    wait_for(harness, router, gpu_blocks=4)
    assert len(sources(harness, router)) == 1


def test_a_source_of_no_worker_is_said(harness, publisher, capfd):
    named = f"http://127.0.0.1:1={publisher.endpoint}"
    open_router(harness, harness.worker(Engine()), kv_event_source=[named])
    wait_until_logged(capfd, "which is no worker of the fleet now")


def test_a_trailing_slash_makes_no_difference(harness, publisher):
    worker = harness.worker(Engine())
    router = open_router(harness, worker, kv_event_source=[f"{worker.url}/={publisher.endpoint}"])
    wait_for(harness, router, connected=True)


def test_an_engine_that_publishes_elsewhere_after_a_restart_is_asked_again(
    harness, capfd, publisher, other_publisher
):
    """Row 42: it stayed silent until the router was restarted, and no line said where the router listened."""
    engine = Engine(publisher)
    worker = harness.worker(engine)
    former = testing.set_silent_nanos(1)
    try:
        router = open_router(harness, worker, kv_events="auto", kv_predict_ttl_secs=0.1)
        wait_for(harness, router, trust="exact")
        engine.publisher = other_publisher  # the restart, in less than a health check's interval
        claim(harness, router, [*range(2000, 2320)])
        source = wait_for(harness, router, endpoint=other_publisher.endpoint)
        wait_until_logged(capfd, f"It is listened to at {publisher.endpoint}")
        wait_until_logged(capfd, f"kv events: {worker.url} names other sources than before")
        assert source["worker"] == worker.url
        other_publisher.stored(TOKENS)
        wait_for(harness, router, gpu_blocks=4)
    finally:
        testing.set_silent_nanos(former)
