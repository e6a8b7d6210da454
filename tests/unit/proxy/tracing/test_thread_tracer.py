"""cpp/proxy/tracing/thread_tracer.h: ids of traces are no part of what --seed repeats."""

from tests.fakes.collector import SERVER, Collector


def test_routers_with_one_seed_have_different_traces(harness):
    collector = Collector(harness)
    for _ in range(2):
        router = harness.router(
            harness.worker(), routing={"seed": 7}, enable_trace=True, otlp_traces_endpoint=collector.url
        )
        assert harness.client(router).ask("GET", "/x").status == 200
    servers = [span for span in collector.wait_for(4) if span.kind == SERVER]
    assert len({span.trace_id for span in servers}) == 2
