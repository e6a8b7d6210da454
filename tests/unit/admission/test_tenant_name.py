"""cpp/admission/tenant_name.h: what tenants are called in logs and metrics, whatever a client sends."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

SAFE = re.compile(r"[A-Za-z0-9._@/-]{1,64}|hash:[0-9a-f]{32}")


@pytest.mark.parametrize(
    "name", ["search", "Team-7", "acme.com/search", "a@b", "_", "x" * 64, "anonymous", "Other"]
)
def test_a_plain_name_is_kept(name):
    assert testing.is_tenant_name(name.encode())
    assert testing.tenant_named(name.encode()) == name


@pytest.mark.parametrize(
    "text",
    [
        b"x" * 65,
        b"other",
        b"key:6ca13d52ca70c883",
        b"hash:00000000000000000000000000000000",
        b"a b",
        b'a"} 1\nvllm_router_up{x="',
        b"a\r\n{}",
        b"a\x00",
        b"\x1b[31m",
        "Zürich".encode(),
        b"\xff\xfe",
        b"a,b",
    ],
)
def test_any_other_text_has_a_name_that_stands_for_it(text):
    assert not testing.is_tenant_name(text)
    assert testing.tenant_named(text) == "hash:" + hashlib.sha256(text).hexdigest()[:32]


@given(st.binary(min_size=1, max_size=100))
def test_no_text_can_leave_its_line_or_label(text):
    assert SAFE.fullmatch(testing.tenant_named(text))


def test_two_texts_are_two_tenants_and_none_is_a_keys():
    texts = [b"Search", b"search", b"search ", b"search\t", b"s\xc3\xa9arch", b"key:", b"anonymous "]
    assert len({testing.tenant_named(text) for text in texts}) == len(texts)
    of_key = testing.tenant_of_key("sk-one")
    assert of_key == "key:" + hashlib.sha256(b"sk-one").hexdigest()[:16]
    assert testing.tenant_named(of_key.encode()) != of_key


def test_the_header_is_found_in_any_case_and_counted():
    def tenant(*values, name="X-Tenant-ID"):
        return testing.tenant_in_headers(
            [("x-tenant", "no"), *((name, value) for value in values)], "x-tenant-id"
        )

    assert tenant() == (0, "")
    assert tenant(" a ") == (1, "a")
    assert tenant("a", name="X-TENANT-id") == (1, "a")
    assert tenant("", "\t") == (0, "")
    assert tenant("a", "b") == (2, "a")
    assert tenant("a", "a") == (2, "a")
