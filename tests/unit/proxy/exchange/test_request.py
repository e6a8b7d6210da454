"""cpp/proxy/exchange/request.h: what a request holds, and when it is released."""

from tests.fakes.harness import Streaming
from tests.fakes.prometheus_text import parse
from tests.fakes.wire import eventually, request

MIB = 1 << 20


def test_a_body_is_forgotten_once_its_response_is_relayed(harness):
    """A stream may last for minutes; until then the body may be sent again."""
    worker = Streaming(harness)
    router = harness.router(worker.worker, policy="cache_aware")

    def held():
        return parse(router.server.metrics_text())["vllm_router_body_memory_bytes"].value()

    body = b'{"prompt": "' + b"x" * MIB + b'"}'
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=body))
    client.read_head()
    eventually(lambda: held() == 0, "the body of a request whose response is relayed")
    client.close()
