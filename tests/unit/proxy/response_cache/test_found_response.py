"""cpp/proxy/response_cache/found_response.h: what a client gets of a stored response."""

import json

import pytest

from tests.fakes.cached import JSON, Engine, answer_of, ask, cached
from tests.fakes.wire import eventually, response


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
