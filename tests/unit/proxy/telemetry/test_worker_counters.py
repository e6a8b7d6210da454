"""cpp/proxy/telemetry/worker_counters.h: each thread counts for itself, and a scrape gives the sum.

That the counters of workers that left are freed is shown by tests/stress/telemetry.cc.
"""

import http.client
import re

from vllm_router import Router
from vllm_router.testing import SimulatedWorker

BODY = b'{"model": "simulated-model", "prompt": "x", "max_tokens": 1}'


def test_requests_of_all_lanes_are_summed_per_worker() -> None:
    with (
        SimulatedWorker(engine="instant") as a,
        SimulatedWorker(engine="instant") as b,
        Router(policy="round_robin", worker_urls=[a.url, b.url]).serve(threads=4) as server,
    ):
        for _ in range(40):  # a connection each, so that the kernel spreads them over the lanes
            client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            client.request(
                "POST", "/v1/completions", b'{"model": "simulated-model", "prompt": "x", "max_tokens": 1}'
            )
            answer = client.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
            client.close()
        server.stop()
        text = server.metrics()
    counts = dict(re.findall(r'vllm_router_processed_requests_total\{worker="([^"]+)"\} (\d+)', text))
    assert counts == {a.url: "20", b.url: "20"}
