"""cpp/proxy/picker/picker_feature.h: options that make no endpoint picker are rejected at the start."""

import pytest

from tests.fakes.harness import QUIET
from vllm_router import Router, _core


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"epp_health_port": 0}, "epp_health_port is 0 and there is no endpoint picker"),
        ({"epp_tls": True}, "epp_tls is set and there is no port of an endpoint picker"),
        ({"epp_only": True}, "epp_only is set and there is no endpoint picker"),
        ({"epp_port": 0, "epp_tls": True}, "epp_tls is set and there is no certificate"),
        ({"epp_port": 0, "epp_metadata_namespace": ""}, "epp_metadata_namespace is empty"),
        ({"epp_port": 0, "epp_subset_namespace": ""}, "epp_subset_namespace is empty"),
    ],
    ids=("health-alone", "tls-alone", "only-alone", "no-certificate", "metadata", "subset"),
)
def test_options_that_make_no_picker_are_rejected(harness, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        harness.router(harness.worker(), **options)


def test_a_worker_with_a_path_cannot_be_told_to_a_gateway(harness):
    with pytest.raises(ValueError, match="has a path; a gateway is told an address and a port"):
        harness.router("http://127.0.0.1:1/prefix", epp_port=0)


def test_a_fleet_of_two_stages_has_no_picker():
    router = Router(
        policy="round_robin",
        vllm_pd_disaggregation=True,
        prefill_urls=[("http://127.0.0.1:1", None)],
        decode_urls=["http://127.0.0.1:2"],
    )
    with pytest.raises(ValueError, match="the fleet has prefill and decode workers"):
        _core.Server(router, **QUIET, epp_port=0)


def test_a_router_has_no_picker_unless_it_is_given_a_port(harness):
    router = harness.router(harness.worker())
    assert router.server.epp_port is None
    assert "epp_" not in router.server.metrics_text()
