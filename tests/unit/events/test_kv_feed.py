"""cpp/events/kv_feed.h: a fleet whose workers are heard in two ways."""

from tests.fakes.kv_engine import TOKENS, client_of, open_router, sources
from tests.fakes.trtllm_engine import TrtllmEngine
from tests.fakes.wire import eventually


def test_each_feed_takes_the_sources_of_its_kind_and_resyncs_its_own_workers(harness, publisher):
    polled = TrtllmEngine()
    workers = {"zmq": harness.worker(TrtllmEngine()), "trtllm": harness.worker(polled)}
    router = open_router(
        harness,
        *workers.values(),
        kv_events="auto",
        kv_events_engine="trtllm",
        kv_event_source=[f"{workers['zmq'].url}={publisher.endpoint}"],
        kv_event_replay_source=[f"{workers['zmq'].url}={publisher.replay_endpoint}"],
    )

    def known():
        return {
            (source["kind"], source["worker"], source["gpu_blocks"]) for source in sources(harness, router)
        }

    publisher.stored(TOKENS)
    polled.tell(polled.cache.stored(TOKENS))
    eventually(lambda: known() == {(kind, worker.url, 4) for kind, worker in workers.items()})
    client = client_of(harness, router)
    for worker in workers.values():
        assert client.ask("POST", f"/admin/kv-events/resync?url={worker.url}").status == 202
    # The publisher tells everything again; an engine that is polled gives each event once.
    eventually(lambda: known() == {("zmq", workers["zmq"].url, 4), ("trtllm", workers["trtllm"].url, 0)})
    assert client.ask("POST", "/admin/kv-events/resync?url=http://127.0.0.1:1").status == 404
