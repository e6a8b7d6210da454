"""cpp/admission/key_grant.h: attributes of keys, and what a mistake in them is called."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

CLASSES = ["interactive", "default", "batch"]


def read(text):
    return testing.parse_key_attributes(text)


def test_all_attributes_in_any_order():
    words = ["tenant=search", "class=batch", "max_class=Interactive", "trusted"]
    for order in itertools.permutations(words):
        for blanks in (" ", "\t", "  \t "):
            assert read(blanks + blanks.join(order) + blanks) == {
                "tenant": "search",
                "class": "batch",
                "max_class": "interactive",
                "trusted": True,
                "highest": "interactive",
            }


def test_without_attributes_a_key_may_claim_default():
    assert read("") == {
        "tenant": "",
        "class": None,
        "max_class": None,
        "trusted": False,
        "highest": "default",
    }


def test_the_highest_class_is_max_class_else_class_else_default():
    for own, most in itertools.product([None, *CLASSES], [None, *CLASSES]):
        text = " ".join(f"{name}={value}" for name, value in (("class", own), ("max_class", most)) if value)
        if own and most and CLASSES.index(own) < CLASSES.index(most):
            with pytest.raises(ValueError, match=f"class={own} is above max_class={most}; raise max_class"):
                read(text)
        else:
            assert read(text)["highest"] == (most or own or "default")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tennant=a", r"the attribute tennant= is unknown; .*\(did you mean tenant\?\)"),
        ("weight=3", "the attribute weight= is unknown; there are tenant=NAME, class=CLASS"),
        ("tenant=a trustd", r"attribute 2 behind the key is unknown; .*\(did you mean trusted\?\)"),
        ("sk-two", "attribute 1 behind the key is unknown; .* each key is on a line of its own"),
        ("hunter", "attribute 1 behind the key is unknown"),
        ("c2VjcmV0=", "attribute 1 behind the key is unknown"),
        ("secret=", "attribute 1 behind the key is unknown"),
        ("secret==", "attribute 1 behind the key is unknown"),
        ("Tenant=a", "attribute 1 behind the key is unknown"),
        ("class=gold", 'the attribute class is "gold"; it must be interactive, default or batch'),
        ("max_class=1", 'the attribute max_class is "1"; it must be'),
        ("class=", "the attribute class has no value; write class=VALUE without blanks"),
        ("tenant", "the attribute tenant has no value"),
        ("tenant=other", 'the attribute tenant is "other"; it must have 1 to 64 letters'),
        ("tenant=a,b", 'the attribute tenant is "a,b"'),
        ("tenant=" + "x" * 65, "it must have 1 to 64 letters"),
        ("tenant=a tenant=a", "the attribute tenant is there twice; leave one of them"),
        ("trusted trusted", "the attribute trusted is there twice"),
        ("trusted=no", "the attribute trusted has a value; write trusted alone"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        read(text)


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=12, max_size=60))
def test_a_second_key_on_the_line_is_never_shown(key):
    """It may look like anything, but for a name of small letters with a value."""
    name, sign, value = key.partition("=")
    if sign and value and set(name) <= set("abcdefghijklmnopqrstuvwxyz_"):
        return
    with pytest.raises(ValueError, match="behind the key") as complaint:
        read(key)
    assert key not in str(complaint.value)
    assert key[:8] not in str(complaint.value) or key[:8] in "attribute behind the key is unknown; there"


@pytest.mark.parametrize(
    ("fields", "tenant", "highest"),
    [
        ([], "", "default"),
        ([("X-Tenant", "search"), ("x-max-class", "interactive")], "search", "interactive"),
        ([("x-tenant", " search ")], "search", "default"),
        ([("x-tenant", "Zürich")], "hash:", "default"),
        ([("x-tenant", "a"), ("x-tenant", "b")], "", "default"),
        ([("x-tenant", "")], "", "default"),
        ([("x-max-class", "gold")], "", "default"),
        ([("x-max-class", "interactive"), ("x-max-class", "batch")], "", "default"),
        ([("x-max-class", "batch")], "", "batch"),
        ([("x-trusted", "true"), ("trusted", "yes"), ("x-class", "interactive")], "", "default"),
    ],
)
def test_a_validators_response_names_tenant_and_highest_class(fields, tenant, highest):
    grant = testing.grant_in_headers(fields)
    assert grant["highest"] == highest
    assert grant["tenant"].startswith(tenant)
    assert bool(grant["tenant"]) == bool(tenant)
    assert not grant["trusted"]
