"""cpp/proxy/events/trtllm_poller.h: workers that are polled for KV events, simulated ones too."""

import http.client
import json

import pytest

from tests.fakes.kv_engine import MODEL, TOKENS, claim, client_of, open_router, sources, wait_for
from tests.fakes.trtllm_engine import TrtllmEngine
from tests.fakes.wire import eventually, wait_until_logged
from vllm_router.testing import SimulatedWorker

TRTLLM = {"kv_events_engine": "trtllm", "kv_events": "auto"}


def test_a_workers_events_are_polled_and_routed_by(harness):
    engines = [TrtllmEngine(), TrtllmEngine()]
    workers = [harness.worker(engine) for engine in engines]
    router = open_router(harness, *workers, **TRTLLM)
    eventually(lambda: [source["trust"] for source in sources(harness, router)] == ["exact"] * 2)
    engines[1].tell(engines[1].cache.stored(TOKENS))
    eventually(lambda: sorted(source["gpu_blocks"] for source in sources(harness, router)) == [0, 4])
    assert claim(harness, router) == (4, workers[1].url)
    source = next(source for source in sources(harness, router) if source["gpu_blocks"] == 4)
    assert source["worker"] == workers[1].url
    assert source["endpoint"] == f"{workers[1].url}/kv_cache_events"
    assert (source["kind"], source["model"], source["block_size"]) == ("trtllm", MODEL, 16)
    assert (source["connected"], source["next_number"], source["lost_batches"]) == (True, 2, 0)
    assert set(engines[1].polls) == {"POST"}
    text = router.server.metrics_text()
    assert f'kv_batches_applied_total{{worker="{workers[1].url}",rank="0"}} 2' in text
    asked = {message.target for worker in workers for message in worker.requests}
    assert "/kv_event_sources" not in asked


def test_without_the_option_nothing_is_polled(harness):
    engine = TrtllmEngine()
    router = open_router(harness, harness.worker(engine), kv_events="auto")
    engine.tell(engine.cache.stored(TOKENS))
    assert claim(harness, router)[0] in (0, 4)
    assert (engine.polls, sources(harness, router)) == ([], [])


def test_a_worker_whose_endpoint_is_named_is_not_polled(harness, publisher):
    engine = TrtllmEngine()
    worker = harness.worker(engine)
    named = [f"{worker.url}={publisher.endpoint}"]
    router = open_router(harness, worker, **TRTLLM, kv_event_source=named)
    source = wait_for(harness, router, connected=True)
    assert (source["kind"], source["endpoint"], engine.polls) == ("zmq", publisher.endpoint, [])


def test_an_engine_that_is_read_by_get(harness):
    engine = TrtllmEngine("GET")
    router = open_router(harness, harness.worker(engine), **TRTLLM)
    engine.tell(engine.cache.stored(TOKENS))
    wait_for(harness, router, gpu_blocks=4, trust="exact")
    assert engine.polls[:2] == ["POST", "GET"]


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_worker_without_the_endpoint_is_said_and_left_alone(harness, capfd, status):
    engine = TrtllmEngine()
    engine.reply = (status, b"{}")
    router = open_router(harness, harness.worker(engine), **TRTLLM)
    wait_until_logged(capfd, f"the response has status {status}; it is polled again in 60 s")
    assert engine.polls == ["POST", "GET"]
    source = sources(harness, router)[0]
    assert (source["trust"], source["connected"]) == ("waiting", False)


def test_a_response_that_is_no_array_is_said(harness, capfd):
    engine = TrtllmEngine()
    engine.reply = (200, b'{"error": "no"}')
    router = open_router(harness, harness.worker(engine), **TRTLLM)
    wait_until_logged(capfd, "the response is no JSON array; it is polled again in 60 s")
    eventually(lambda: sources(harness, router)[0]["dropped"] == {"malformed_batch": 1})
    assert len(engine.polls) == 1


def test_a_response_that_is_too_long_is_said_and_the_pause_does_not_grow(harness, capfd):
    """cpp/proxy/events/trtllm_poller.h: kMaxResponseBytes"""
    engine = TrtllmEngine()
    engine.reply = (200, b"[" + b" " * (32 << 20) + b"]")
    router = open_router(harness, harness.worker(engine), **TRTLLM)
    wait_until_logged(capfd, "the response is longer than 32 MiB, so its events are lost")
    eventually(lambda: len(engine.polls) >= 3)
    engine.tell(engine.cache.stored(TOKENS))
    engine.reply = None
    wait_for(harness, router, gpu_blocks=4, trust="exact")


def test_an_error_is_polled_again(harness):
    engine = TrtllmEngine()
    engine.reply = (503, b"{}")
    router = open_router(harness, harness.worker(engine), **TRTLLM)
    eventually(lambda: len(engine.polls) >= 1)
    engine.reply = None
    wait_for(harness, router, trust="exact")


def test_an_engine_that_restarts_is_known_afresh(harness):
    engine = TrtllmEngine()
    router = open_router(harness, harness.worker(engine), **TRTLLM)
    engine.tell(engine.cache.stored(TOKENS))
    wait_for(harness, router, gpu_blocks=4, trust="exact")
    engine.restart()
    source = wait_for(harness, router, gpu_blocks=0, trust="exact", incarnation=1)
    assert source["incarnations"] == {"sequence": 1}


def test_another_client_of_the_endpoint_is_said(harness, capfd):
    engine = TrtllmEngine()
    worker = harness.worker(engine)
    router = open_router(harness, worker, **TRTLLM)
    wait_for(harness, router, trust="exact")
    for lost in range(1, 4):
        engine.cache.number += 1  # the other one took it
        engine.tell(engine.cache.stored([lost] * 16))
        wait_for(harness, router, lost_batches=lost, trust="partial")
    wait_until_logged(capfd, f"another client drains {worker.url}/kv_cache_events")


def test_a_worker_that_is_removed_is_polled_no_more(harness):
    engine = TrtllmEngine()
    worker = harness.worker(engine)
    router = open_router(harness, worker, harness.worker(TrtllmEngine()), **TRTLLM)
    eventually(lambda: len(sources(harness, router)) == 2)
    router.core.remove_worker(worker.url)
    eventually(lambda: len(sources(harness, router)) == 1)


def test_a_resync_drops_what_is_known(harness):
    engine = TrtllmEngine()
    worker = harness.worker(engine)
    router = open_router(harness, worker, **TRTLLM)
    engine.tell(engine.cache.stored(TOKENS))
    wait_for(harness, router, gpu_blocks=4, trust="exact")
    answer = client_of(harness, router).ask("POST", f"/admin/kv-events/resync?url={worker.url}")
    assert answer.status == 202
    wait_for(harness, router, gpu_blocks=0, trust="partial")


# ---- simulated workers


@pytest.fixture
def simulated():
    """Requested before the harness, which counts descriptors."""
    options = {"engine": "instant", "kv_events_polled": True, "block_tokens": 16, "model": MODEL}
    with SimulatedWorker(**options) as first, SimulatedWorker(**options) as second:
        yield first, second


def test_prompts_follow_the_caches_of_simulated_workers(simulated, harness):
    router = open_router(harness, *[worker.url for worker in simulated], **TRTLLM)
    eventually(lambda: [source["trust"] for source in sources(harness, router)] == ["exact"] * 2)
    # Past the router.
    connection = http.client.HTTPConnection("127.0.0.1", simulated[1].port, timeout=30)
    body = json.dumps({"model": MODEL, "prompt": TOKENS, "max_tokens": 1})
    connection.request("POST", "/v1/completions", body)
    assert connection.getresponse().read()
    eventually(lambda: any(source["gpu_blocks"] >= 4 for source in sources(harness, router)))
    assert claim(harness, router) == (4, simulated[1].url)
    assert {source["trust"] for source in sources(harness, router)} == {"exact"}

    simulated[1].restart_kv_events()
    eventually(lambda: any(source["incarnation"] == 1 for source in sources(harness, router)))
    assert {source["trust"] for source in sources(harness, router)} == {"exact"}

    # Another client that takes events leaves a gap, unless the router was faster.
    def heard():
        return next(s["next_number"] for s in sources(harness, router) if s["incarnation"] == 1)

    def ask(path, body=None):
        connection.request("POST", path, body)
        connection.getresponse().read()

    def taken():
        before = heard()
        prompt = json.dumps({"model": MODEL, "prompt": [7] * 64})
        ask("/v1/completions", prompt)
        ask("/kv_cache_events")
        ask("/reset_prefix_cache")
        ask("/v1/completions", prompt)
        eventually(lambda: heard() > before)
        return any(source["trust"] == "partial" for source in sources(harness, router))

    eventually(taken)
    connection.close()
