"""cpp/proxy/admission/admission_feature.h: what a server takes of it."""

import pytest


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tenant_header": "cookie"}, "tenant_header"),
        ({"trusted_addresses": ["here"]}, "trusted_addresses"),
        ({"model_alias_class": ["a=gold"]}, "model_alias_class"),
    ],
    ids=["tenant_header", "trusted_addresses", "model_alias_class"],
)
def test_options_are_checked_before_a_server_starts(harness, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        harness.router(harness.worker(), **options)


def test_its_families_are_there_where_nothing_is_told_apart(harness):
    router = harness.router(harness.worker())
    harness.client(router).ask("POST", "/v1/completions", body=b"{}")
    router.must_rest()
    text = router.server.metrics_text()
    for line in (
        "vllm_router_class_claims_clamped_total 0",
        "vllm_router_class_claims_unknown_total 0",
        'vllm_router_tenant_headers_ignored_total{reason="untrusted"} 0',
        'vllm_router_tenant_tokens_total{tenant="other",kind="completion"} 0',
    ):
        assert f"\n{line}\n" in text
