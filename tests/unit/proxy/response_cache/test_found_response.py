"""cpp/proxy/response_cache/found_response.h: what a client gets of a stored response."""

import json

import pytest

from tests.fakes.cached import EVENTS, JSON, Engine, answer_of, ask, body_of, cache_of, cached
from tests.fakes.wire import eventually, response


def test_a_hit_has_the_stored_head_body_and_age(harness):
    client = harness.client(cached(harness, Engine(harness)))
    assert cache_of(ask(client)) == "MISS"
    hit = ask(client)
    assert (hit.status, hit.body, cache_of(hit)) == (200, answer_of(1), "HIT")
    assert hit.get("content-type") == JSON[1]
    assert int(hit.get("age")) >= 0
    assert ask(client).get("age") is not None  # a second time, of the same bytes


def test_a_stream_is_replayed_as_one(harness):
    client = harness.client(cached(harness, Engine(harness)))
    first, second = (ask(client, body_of(stream=True)) for _ in range(2))
    assert (cache_of(first), cache_of(second)) == ("MISS", "HIT")
    assert first.body == second.body == b"".join(EVENTS)
    assert second.get("content-type") == "text/event-stream"


@pytest.mark.parametrize("size", [1 << 10, 200 << 10], ids=["short", "long"])
def test_a_long_one_is_held_for_as_long_as_it_is_replayed(harness, size):
    """Beyond 64 KiB it counts against the memory of bodies."""
    parsed = json.loads(answer_of(1))
    parsed["choices"][0]["message"]["content"] = "x" * size
    whole = json.dumps(parsed).encode()
    engine = Engine(harness, send=lambda connection, *_: connection.send(response(200, whole, JSON)))
    router = cached(harness, engine)
    client = harness.client(router)
    assert [ask(client).body for _ in range(3)] == [whole] * 3
    assert engine.count == 1
    eventually(lambda: "vllm_router_body_memory_bytes 0\n" in router.server.metrics_text(), "memory is kept")
