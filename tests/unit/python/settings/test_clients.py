"""python/vllm_router/settings/clients.py: which headers name tenants, and classes of aliases."""

import pytest

from vllm_router.settings.args import RouterArgs
from vllm_router.settings.clients import NEVER_NAMES, TenantHeader, alias_class
from vllm_router.settings.kinds import Unfit


@pytest.mark.parametrize("name", ["X-Tenant-ID", " x-team "])
def test_a_header_may_name_tenants(name):
    assert TenantHeader().check(name) == name.strip()


@pytest.mark.parametrize("name", ["", "a b", "x:", *NEVER_NAMES, "Cookie"])
def test_a_header_with_a_secret_names_none(name):
    with pytest.raises(Unfit):
        TenantHeader().check(name)


@pytest.mark.parametrize("text", ["nightly=batch", "a=b=interactive", "m:7b=default"])
def test_an_alias_has_a_class(text):
    assert alias_class(text) == text


@pytest.mark.parametrize("text", ["nightly", "nightly=gold", "=batch", "nightly=", "a\tb=batch"])
def test_a_mistake_in_a_class_is_told(text):
    with pytest.raises(Unfit):
        alias_class(text)


def test_settings_that_trust_nobody_or_everybody_are_told():
    def told(**settings):
        return RouterArgs(worker_urls=["http://a:1"], **settings).warnings()

    assert any("counts from no client" in line for line in told(tenant_header="x-tenant"))
    assert not any(
        "counts from no client" in line
        for line in told(tenant_header="x-tenant", trusted_addresses=["10.0.0.0/8"])
    )
    assert any("is every address" in line for line in told(trusted_addresses=["0.0.0.0/0"]))
