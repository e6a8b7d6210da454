"""cpp/simulation/kv_event_buffer.h: what a client of a simulated worker's cache polls, as of TensorRT-LLM."""

import http.client
import json

import pytest

from tests.unit.simulation.wire import FAST, ask
from vllm_router import _core_testing as testing
from vllm_router.testing import SimulatedWorker

BLOCK = 16


def poll(worker, method="POST"):
    """The status and the events."""
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
    connection.request(method, "/kv_cache_events")
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status == 200:
        assert testing.read_trtllm_events(body) is not None
        return 200, json.loads(body)
    return response.status, []


def held(events):
    """The cache that follows from the events: token ids by hash."""
    cache = {}
    for event in events:
        data = event["data"]
        for block in data.get("blocks", []):
            cache[block["block_hash"]] = [token["token_id"] for token in block["tokens"]]
        for name in data.get("block_hashes", []):
            del cache[name]
    return cache


@pytest.fixture
def worker():
    with SimulatedWorker(**FAST, kv_events_polled=True, cache_blocks=64, block_tokens=BLOCK) as worker:
        yield worker


def complete(worker, tokens):
    assert ask(worker, "/v1/completions", {"prompt": tokens, "max_tokens": 1})[0] == 200


def test_each_event_is_given_once(worker):
    status, events = poll(worker)
    assert status == 200
    assert [event["data"] for event in events] == [{"type": "created", "num_blocks_per_cache_level": [64, 0]}]
    complete(worker, [*range(40)])
    _, events = poll(worker)
    assert [event["event_id"] for event in events] == [*range(1, 1 + len(events))]
    assert sorted(held(events).values()) == [[*range(16)], [*range(16, 32)]]
    assert poll(worker) == (200, [])


def test_a_restart_numbers_from_0_and_forgets_the_cache(worker):
    complete(worker, [*range(40)])
    worker.restart_kv_events()
    _, events = poll(worker)
    assert [(event["event_id"], event["data"]["type"]) for event in events] == [(0, "created")]
    complete(worker, [*range(40)])
    assert len(held(poll(worker)[1])) == 2


def test_a_cache_that_is_emptied_removes_every_block(worker):
    complete(worker, [*range(40)])
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
    connection.request("POST", "/reset_prefix_cache")
    assert connection.getresponse().status == 200
    connection.close()
    complete(worker, [7] * 20)  # it is told with the next step
    assert [*held(poll(worker)[1]).values()] == [[7] * 16]


def test_the_last_events_are_kept():
    options = {"kv_events_polled": True, "kv_events_buffer_steps": 2, "block_tokens": BLOCK}
    with SimulatedWorker(**FAST, **options) as worker:
        for i in range(5):
            complete(worker, [i] * 20)
        events = poll(worker)[1]
        assert len(events) == 2
        assert events[0]["event_id"] >= 3


def test_a_worker_that_publishes_is_not_polled():
    with SimulatedWorker(**FAST, kv_events_port=0) as worker:
        complete(worker, [*range(40)])
        assert poll(worker) == (200, [])
    with SimulatedWorker(**FAST, kv_events_polled=True) as worker:
        assert poll(worker, "GET")[0] == 405
    with pytest.raises(ValueError, match="either publishes its KV events or keeps them for polls"):
        SimulatedWorker(kv_events_port=0, kv_events_polled=True)
