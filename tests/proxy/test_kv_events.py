"""KV events end to end: where requests go by what engines say of their caches."""

import json
import time

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
from tests.fakes.wire import chunked, eventually, request
from vllm_router.testing import KvEventPublisher

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_request_goes_where_the_events_say(harness, publisher, other_publisher):
    first, second = harness.worker(Engine(publisher)), harness.worker(Engine(other_publisher))
    router = open_router(harness, first, second)
    eventually(lambda: [s["trust"] for s in sources(harness, router)] == ["exact", "exact"])
    other_publisher.stored(TOKENS)
    eventually(lambda: sum(s["gpu_blocks"] for s in sources(harness, router)) == 4)
    assert claim(harness, router) == (4, second.url)


def test_a_reset_through_the_router_counts_at_once(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)))
    publisher.stored(TOKENS)
    wait_for(harness, router, trust="exact", gpu_blocks=4)
    # vLLM tells of it with its next step only.
    assert harness.client(router).ask("POST", "/reset_prefix_cache").status == 200
    assert claim(harness, router)[0] == 0
    publisher.cleared()
    publisher.stored(TOKENS)
    wait_for(harness, router, next_number=3)
    eventually(lambda: claim(harness, router)[0] == 4)


def test_text_is_tokenized_while_a_worker_publishes(harness, publisher):
    engine = Engine(publisher)
    router = open_router(harness, harness.worker(engine))
    publisher.stored(TOKENS)
    wait_for(harness, router, gpu_blocks=4, trust="exact")
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello " * 20}], "max_tokens": 1}
    found = harness.client(router).ask("POST", "/v1/chat/completions", body=json.dumps(body).encode())
    # The last token of a prompt is computed in any case, so its block does not count.
    assert found.get("x-vllm-router-cache-status") == "3/4 blocks"
    assert engine.tokenized == 1


def test_what_was_just_sent_counts_before_its_events(harness, publisher, other_publisher):
    workers = [harness.worker(Engine(publisher)), harness.worker(Engine(other_publisher))]
    router = open_router(harness, *workers, kv_predict_ttl_secs=60)
    eventually(lambda: [s["trust"] for s in sources(harness, router)] == ["exact", "exact"])
    assert claim(harness, router)[0] == 0
    held, _ = claim(harness, router)
    assert held == 4


def test_what_was_sent_long_ago_and_never_published_does_not(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)), kv_predict_ttl_secs=0.2)
    wait_for(harness, router, trust="exact")
    claim(harness, router)

    def expired():
        time.sleep(0.4)  # each claim is predicted again
        return claim(harness, router)[0] == 0

    eventually(expired)


def test_by_default_what_an_engine_dropped_is_not_claimed_a_second_later(harness, publisher):
    """It was for up to 5 s: in front of small caches claims were 14 % too high."""
    router = open_router(harness, harness.worker(Engine(publisher)))
    wait_for(harness, router, trust="exact")
    claim(harness, router)
    hashes = publisher.stored(TOKENS)
    publisher.removed(hashes)
    wait_for(harness, router, next_number=2)

    def forgotten():
        time.sleep(1)  # each claim is predicted again
        return claim(harness, router)[0] == 0

    eventually(forgotten)


def test_what_waits_for_its_first_token_is_predicted_until_it_comes(harness, publisher):
    engine = Engine(publisher)
    gate = None

    def respond(connection, message):
        if message.target == COMPLETIONS and json.loads(message.body).get("stream"):
            gate.wait()
            connection.send(STREAM, chunked(b"data: 1\n\n"))
        else:
            engine(connection, message)

    worker = harness.worker(respond)
    gate = worker.gate()
    router = open_router(harness, worker, kv_predict_ttl_secs=0.2)
    wait_for(harness, router, trust="exact")
    waiting = harness.client(router)
    body = {"model": MODEL, "prompt": [*TOKENS, 7], "max_tokens": 1, "stream": True}
    waiting.send(request("POST", COMPLETIONS, body=json.dumps(body).encode()))
    gate.wait_for_someone()

    def expired(tokens):
        time.sleep(0.4)  # each claim is predicted again
        return claim(harness, router, tokens)[0] == 0

    eventually(lambda: expired([3] * 64))
    assert claim(harness, router)[0] == 4
    assert not expired(TOKENS)
    gate.open()
    assert waiting.read_response().status == 200
    eventually(lambda: expired(TOKENS))


def test_metrics_say_the_same(harness, publisher):
    worker = harness.worker(Engine(publisher))
    router = open_router(harness, worker)
    publisher.stored(TOKENS)
    wait_for(harness, router, trust="exact", gpu_blocks=4)
    lines = router.server.metrics_text().splitlines()
    assert f'vllm_router_kv_trust{{worker="{worker.url}",rank="0",state="exact"}} 1' in lines
    assert f'vllm_router_kv_index_pairs{{worker="{worker.url}",rank="0",tier="gpu"}} 4' in lines


@pytest.mark.parametrize("name", ["other-name", "", None])
def test_all_names_of_a_model_have_its_blocks(harness, publisher, name):
    router = open_router(harness, harness.worker(Engine(publisher)))
    publisher.stored(TOKENS)
    wait_for(harness, router, gpu_blocks=4, trust="exact")
    body = {"prompt": [*TOKENS, 7], "max_tokens": 1} | ({} if name is None else {"model": name})
    found = client_of(harness, router).ask("POST", COMPLETIONS, body=json.dumps(body).encode())
    assert found.get("x-vllm-router-cache-status") == "4/4 blocks"


def test_an_adapter_has_its_own_blocks_and_what_was_sent(harness, publisher):
    router = open_router(harness, harness.worker(Engine(publisher)))
    publisher.stored(TOKENS)
    wait_for(harness, router, gpu_blocks=4, trust="exact")
    assert claim(harness, router, model="adapter")[0] == 0
    assert claim(harness, router, model="adapter")[0] == 4  # sent before, whatever the events say
    publisher.stored([3] * 32, lora_name="adapter")
    wait_for(harness, router, gpu_blocks=6)
    assert claim(harness, router, [3] * 32, model="adapter")[0] == 2
    assert claim(harness, router, [3] * 32)[0] == 0


def test_the_end_of_a_later_turn_is_tokenized_too_however_short(harness, publisher):
    engine = Engine(publisher)
    router = open_router(harness, harness.worker(engine))
    wait_for(harness, router, trust="exact")
    messages = [{"role": "user", "content": "hello " * 20}]
    for calls in (1, 2, 3):
        body = json.dumps({"model": MODEL, "messages": messages, "max_tokens": 1}).encode()
        found = client_of(harness, router).ask("POST", "/v1/chat/completions", body=body)
        assert (found.status, engine.tokenized) == (200, calls)
        messages += [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "So?"}]


def test_lost_removals_are_found_by_the_size_of_the_cache(harness):
    """Five blocks, of which one is never used; removals are lost, so more are known than there can be."""
    with KvEventPublisher(replay=False) as publisher:
        worker = harness.worker(Engine(publisher, gpu_blocks=5))
        router = open_router(harness, worker)
        wait_for(harness, router, connected=True)
        hashes = publisher.stored(TOKENS)
        wait_for(harness, router, trust="exact", gpu_blocks=4)
        publisher.drop()
        publisher.removed(hashes)
        publisher.stored([3] * 64)
        wait_for(harness, router, trust="partial", gpu_blocks=8)
        # cpp/events/cache_audit.h: kPeriodNanos
        eventually(lambda: sources(harness, router)[0]["incarnations"] == {"audit": 1}, "no audit", 30)
        publisher.stored([5] * 32)
        source = wait_for(harness, router, trust="partial", gpu_blocks=2)
        assert source["coverage"] == 0.5
        assert claim(harness, router, [5] * 32) == (2, worker.url)
        line = f'vllm_router_kv_coverage_ratio{{worker="{worker.url}",rank="0"}} 0.5'
        assert line in router.server.metrics_text().splitlines()
