"""cpp/proxy/admission/admission_feature.h: what a server takes of it."""

import json

import pytest


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tenant_header": "cookie"}, "tenant_header"),
        ({"trusted_addresses": ["here"]}, "trusted_addresses"),
        ({"model_alias_class": ["a=gold"]}, "model_alias_class"),
        (
            {"admission_config": "class batch", "epp_port": 0, "epp_only": True},
            "admission_config is set and epp_only, too",
        ),
    ],
    ids=["tenant_header", "trusted_addresses", "model_alias_class", "epp_only"],
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


SAME = {"health_check_interval_secs": 0, "retry_max_retries": 0}


def apply(router, lines=""):
    router.server.apply({**SAME, "admission_config": lines}, None, 0.5, 60.0, False)


def batch_size(harness, router):
    page = json.loads(harness.client(router).ask("GET", "/admin/admission").body)
    return page["classes"][2]["queue_size"] if page["enabled"] else None


def test_other_classes_are_followed_and_a_mistake_changes_nothing(harness):
    router = harness.router(harness.worker(), admission_config="class batch queue_size=7")
    with pytest.raises(ValueError, match="admission_config, line 1: class is"):
        apply(router, "class gold")
    assert batch_size(harness, router) == 7
    apply(router, "class batch queue_size=8")
    assert batch_size(harness, router) == 8
    apply(router)
    assert batch_size(harness, router) is None


def test_classes_that_come_later_tell_clients_apart(harness):
    router = harness.router(harness.worker())
    apply(router, "class batch")
    got = harness.client(router).ask("POST", "/v1/completions", ("x-smg-priority", "batch"), body=b"{}")
    assert got.status == 200
    text = router.server.metrics_text()
    assert '\nvllm_router_class_dispatched_total{class="batch",how="direct"} 1\n' in text
