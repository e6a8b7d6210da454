"""cpp/proxy/admission/thread_admission.h: what one thread counts of its requests' claims."""

import re


def counts(router):
    router.must_rest()
    text = router.server.metrics_text()
    names = ("class_claims_clamped_total", "class_claims_unknown_total", "tenant_headers_ignored_total")
    found = re.findall(rf"^vllm_router_({'|'.join(names)})(?:\{{reason=\"(\w+)\"\}})? (\d+)$", text, re.M)
    return {name + (f" {reason}" if reason else ""): int(count) for name, reason, count in found}


def test_each_counter_counts_its_own(harness):
    router = harness.router(
        harness.worker(), tenant_header="x-tenant", trusted_addresses=["10.0.0.0/8"], model_alias_class=[]
    )
    client = harness.client(router)
    for fields in (
        [("x-smg-priority", "interactive")],
        [("x-smg-priority", "gold"), ("x-dynamo-inference-objective", "silver")],
        [("x-tenant", "a")],
        [("x-tenant", "a"), ("x-tenant", "b")],
    ):
        assert client.ask("POST", "/v1/completions", *fields, body=b"{}").status == 200
    assert counts(router) == {
        "class_claims_clamped_total": 1,
        "class_claims_unknown_total": 2,
        "tenant_headers_ignored_total untrusted": 2,
        "tenant_headers_ignored_total ambiguous": 0,
    }
