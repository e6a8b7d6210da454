"""cpp/proxy/telemetry/counters.h:
counts of one thread that a scrape reads at any moment, seen through a server.
"""

import http.client
import re

from tests.fakes.wire import eventually
from vllm_router import Router


def samples(text: str, name: str) -> dict[str, float]:
    return {
        labels: float(value)
        for labels, value in re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    }


def test_counts_only_rise_and_buckets_add_up_to_the_count() -> None:
    with Router(policy="round_robin").serve(threads=2) as server:

        def total() -> float:
            return sum(samples(server.metrics(), "vllm_router_http_responses_total").values())

        before = -1.0
        for _ in range(20):
            client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            client.request("POST", "/v1/completions", b"{}")
            assert client.getresponse().status == 503
            client.close()
            now = total()
            assert now >= before
            before = now
        eventually(lambda: total() == 20)  # the last is counted after its client has it
    text = server.metrics()
    for name in ("vllm_router_request_duration_seconds",):
        counts = samples(text, f"{name}_count")
        for labels, count in counts.items():
            prefix = labels.rstrip("}")
            buckets = [v for k, v in samples(text, f"{name}_bucket").items() if k.startswith(prefix)]
            assert buckets == sorted(buckets)
            assert buckets[-1] == count
