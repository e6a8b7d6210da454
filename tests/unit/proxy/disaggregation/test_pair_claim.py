"""cpp/proxy/disaggregation/pair_claim.h: how blocks at prefill end (tests/proxy/test_pd.py)."""

import pytest

from tests.fakes.pd import handing_over, responding
from tests.fakes.wire import eventually


def ends(router):
    name = "vllm_router_pd_claims_total{"
    lines = [line for line in router.server.metrics_text().splitlines() if line.startswith(name)]
    return {line.split('"')[1]: int(line.split()[-1]) for line in lines if not line.endswith(" 0")}


@pytest.mark.parametrize(("status", "end"), [(200, "redeemed"), (500, "expired")])
def test_a_claim_ends_once(harness, status, end):
    prefill, decode = handing_over(harness), responding(harness, status)
    routing = {"prefill_urls": [prefill.url], "decode_urls": [decode.url]}
    router = harness.router(routing=routing, disable_retries=True)
    message = harness.client(router).ask("POST", "/v1/completions", body=b'{"prompt":"hi"}')
    assert message.status == status
    eventually(lambda: ends(router) == {end: 1}, "its end is not counted")
