"""cpp/proxy/admission/admission_metrics.h: tokens of tenants and claims, over all threads."""

import json
import re

from tests.fakes.wire import response

USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
HIGH = ("x-smg-priority", "interactive")


def whole(connection, _message):
    body = json.dumps({"usage": USAGE}).encode()
    connection.send(response(200, body, ("Content-Type", "application/json")))


def test_all_threads_and_kinds_are_counted(harness, tmp_path):
    (tmp_path / "keys").write_text("sk-a tenant=a\nsk-b tenant=b\n")
    router = harness.router(harness.worker(whole), client_api_key_file=str(tmp_path / "keys"), threads=2)
    for name in "aab" * 4:  # each on a connection of its own, which either thread may have
        client = harness.client(router)
        got = client.ask("POST", "/v1/completions", ("x-api-key", f"sk-{name}"), HIGH, body=b"{}")
        assert got.status == 200
    router.must_rest()
    text = router.server.metrics_text()
    assert "\nvllm_router_class_claims_clamped_total 12\n" in text
    found = re.findall(
        r'^vllm_router_tenant_tokens_total\{tenant="(\w+)",kind="(\w+)"\} (\d+)$', text, re.MULTILINE
    )
    assert {(tenant, kind): int(count) for tenant, kind, count in found} == {
        ("a", "prompt"): 80,
        ("a", "cached"): 32,
        ("a", "completion"): 24,
        ("b", "prompt"): 40,
        ("b", "cached"): 16,
        ("b", "completion"): 12,
        **{("other", kind): 0 for kind in ("prompt", "cached", "completion")},
    }


def test_rejections_and_tenants_are_there_without_limits(harness):
    text = harness.router(harness.worker()).server.metrics_text()
    for line in (
        'vllm_router_tenant_rejected_total{tenant="other",reason="tenant_rate_limited"} 0',
        'vllm_router_tenant_rejected_total{tenant="other",reason="tenant_tokens_limited"} 0',
        'vllm_router_tenant_rejected_total{tenant="other",reason="tenant_concurrency"} 0',
        "vllm_router_limited_tenants 0",
        "vllm_router_tenant_limits_shared_total 0",
    ):
        assert f"\n{line}\n" in text


def test_rejections_of_all_threads_are_counted(harness):
    lines = "tenant requests_per_minute=1 burst_ms=1 default"
    router = harness.router(harness.worker(), threads=2, admission_config=lines)
    statuses = [
        harness.client(router).ask("POST", "/v1/completions", body=b"{}").status for _ in range(8)
    ]  # each on a connection of its own, which either thread may have
    assert sorted(statuses) == [200] + [429] * 7
    router.must_rest()
    line = 'vllm_router_tenant_rejected_total{tenant="anonymous",reason="tenant_rate_limited"} 7'
    assert f"\n{line}\n" in router.server.metrics_text()
