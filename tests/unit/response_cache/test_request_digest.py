"""cpp/response_cache/request_digest.h: known keys, and the formulas of tests/models/request_digest.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import request_digest as model
from vllm_router import _core_testing as testing

CHAT = b"/v1/chat/completions"
HELLO = b'[{"role":"user","content":"Hello!"}]'
MEMBERS = [(b"model", b'"llama-3"'), (b"messages", HELLO), (b"temperature", b"0")]
TENANT = bytes.fromhex("9bd4a7589ef663647f7c29e2b50c6160f5159df3f0340fb35040feed485fb3fb")

# (tenant, generation, more members, key)
VECTORS = [
    (None, 0, [], "695d29ff0799099ebe246446f1e3b957663ac1b1d6db46a6defdf1a361a46db4"),
    (None, 0, [(b"stream", b"true")], "1625ea4c5df2b3b72b90732df78b5521a496f72129e8c528e0fee2b5485382c0"),
    (TENANT, 0, [], "68338dd5cc850d367644d686e637cb42ed4202b2013248a072980888f3a557aa"),
    (None, 1, [], "f3f5b9e1d2e2c96b77f42fb254888deaa77dc3974196115dfdbfdedd483f1311"),
]


@pytest.mark.parametrize(("tenant", "generation", "more", "key"), VECTORS)
def test_known_keys(tenant, generation, more, key):
    for members in (MEMBERS + more, (MEMBERS + more)[::-1]):
        assert testing.digest_request(CHAT, b"", tenant, generation, members).hex() == key


def test_a_credential_is_a_tenant():
    assert testing.tenant_of_credential(b"Bearer sk-a") == TENANT
    assert testing.tenant_of_header(b"acme") == model.tenant_of(b"tenant-header", b"acme")
    assert testing.tenant_of_both(b"a", b"b") not in (
        testing.tenant_of_both(b"b", b"a"),
        testing.tenant_of_both(b"ab", b""),
        testing.tenant_of_both(b"", b"ab"),
    )


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({"temperature": 0.0}, "37f32db27668fa2ca008ff026b9dc0b7a6195ffe105cfa87d1f57734fbcbbf2d"),
        (
            {"temperature": 0.0, "max_tokens": 16},
            "008616877d97796f2705da8794468bdf656e0faa3e3427905d9869a857920df2",
        ),
        (
            {"temperature": 0.0, "max_tokens": 0, "tenant": b"acme"},
            "ebfcbd6aba6dbad375034f34535571d39f9617ba3782f8e1132a374e1d4888d8",
        ),
        ({}, "edd958be61237493c797bc3bf276bb0f223371f5609995b5e872f17cfadcc5ad"),
    ],
)
def test_known_keys_of_the_seed(parameters, key):
    assert testing.digest_five_parameters(b"llama-3", HELLO, **parameters).hex() == key


texts = st.binary(max_size=30)


@given(
    texts,
    texts,
    st.none() | st.binary(min_size=32, max_size=32),
    st.integers(0, 2**64 - 1),
    st.dictionaries(texts, texts, max_size=6),
)
def test_keys_are_those_of_the_formula(path, query, tenant, generation, members):
    members = list(members.items())
    expected = model.digest_request(path, query, tenant, generation, members)
    assert testing.digest_request(path, query, tenant, generation, members) == expected
    assert testing.digest_request(path, query, tenant, generation, members[::-1]) == expected


@given(
    texts,
    texts,
    st.none() | st.floats(allow_nan=False),
    st.none() | st.integers(0, 2**64 - 1),
    st.none() | st.floats(allow_nan=False),
    st.none() | texts,
)
def test_keys_of_the_seed_are_those_of_the_formula(name, messages, temperature, max_tokens, top_p, tenant):
    given_ = (name, messages, temperature, max_tokens, top_p, tenant)
    assert testing.digest_five_parameters(*given_) == model.digest_five_parameters(*given_)


@given(st.lists(texts, min_size=5, max_size=5), st.lists(texts, min_size=5, max_size=5))
def test_no_two_requests_share_a_key(a, b):
    def key(path, query, tenant, name, value):
        return testing.digest_request(path, query, tenant[:0] or None, 0, [(name, value), (b"t", tenant)])

    if b"t" not in (a[3], b[3]):
        assert (key(*a) == key(*b)) == (a == b)
