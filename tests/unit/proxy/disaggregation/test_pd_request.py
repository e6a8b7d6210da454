"""cpp/proxy/disaggregation/pd_request.h: what a request is for a fleet with stages."""

import json
import re

import pytest


@pytest.mark.parametrize(
    ("method", "path", "body", "kind"),
    [
        ("GET", "/v1/unknown", b"", "single"),
        ("POST", "/v1/embeddings", b'{"input": "hi"}', "single"),
        ("POST", "/v1/audio/transcriptions", b"--x\r\nno JSON", "single"),
        ("POST", "/v1/completions", b'{"prompt": ["a", "b"]}', "local"),
        ("POST", "/v1/completions", b'{"prompt": "a"}', "two_stages"),
        ("POST", "/extra", b'{"prompt": "a"}', "two_stages"),
    ],
)
def test_the_kinds(harness, method, path, body, kind):
    routing = {"prefill_urls": [harness.worker().url], "decode_urls": [harness.worker().url]}
    router = harness.router(routing=routing, pd_extra_routes=["/extra"])
    assert harness.client(router).ask(method, path, body=body).status == 200
    router.must_rest()
    kinds = re.findall(r'pd_plan_total\{kind="(\w+)"\} 1', router.server.metrics_text())
    assert kinds == [kind]


def test_without_stages_nothing_is_edited(harness):
    worker = harness.worker()
    body = json.dumps({"prompt": "hi", "kv_transfer_params": {"remote_host": "h"}}).encode()
    client = harness.client(harness.router(worker))
    assert client.ask("POST", "/v1/completions", body=body).status == 200
    assert worker.requests[0].body == body
