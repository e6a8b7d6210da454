"""cpp/proxy/admission/client_rules.h: what options say of clients, without Python's checks in front."""

import pytest

from vllm_router import _core_testing as testing


def test_without_options_there_are_no_rules():
    assert not testing.ClientRules().any
    assert testing.ClientRules("X-Tenant").any
    assert testing.ClientRules(trusted_addresses=["::1"]).any
    assert testing.ClientRules(model_alias_class=["a=batch"]).any


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "x-API-key",
        "api-key",
        "Cookie",
        "proxy-authorization",
        "Host",
        "a b",
        "a:",
        "ä",
        "Via",
    ],
)
def test_a_header_with_a_secret_names_no_tenant(name):
    with pytest.raises(ValueError, match=r"tenant_header is .* such as X-Tenant-ID"):
        testing.ClientRules(name)


def test_addresses_are_trusted_by_range():
    rules = testing.ClientRules(trusted_addresses=["10.0.0.0/8", "fd00::/8", "192.0.2.7"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "192.0.2.7"):
        assert rules.trusts(address)
    for address in ("11.0.0.1", "192.0.2.8", "::1", "", "10.1.2.3, 11.0.0.1", "localhost"):
        assert not rules.trusts(address)
    with pytest.raises(ValueError, match="trusted_addresses"):
        testing.ClientRules(trusted_addresses=["gateway"])


def test_aliases_have_classes():
    rules = testing.ClientRules(model_alias_class=["nightly=batch", "a=b=Interactive"])
    assert rules.class_of_alias("nightly") == "batch"
    assert rules.class_of_alias("a=b") == "interactive"
    assert rules.class_of_alias("Nightly") is None


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["nightly"], 'model_alias_class has "nightly"; write it as ALIAS=CLASS'),
        (["=batch"], "write it as ALIAS=CLASS"),
        (["nightly=gold"], "where the class is interactive, default or batch"),
        (["a=batch", "a=default"], 'model_alias_class has the alias "a" twice'),
    ],
)
def test_a_mistake_in_a_class_is_named(texts, complaint):
    with pytest.raises(ValueError, match=complaint):
        testing.ClientRules(model_alias_class=texts)
