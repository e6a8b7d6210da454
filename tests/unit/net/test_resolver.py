"""cpp/net/resolver.h"""

import pytest

from vllm_router._core import testing

NO_NAME = "a" * 64  # a label longer than 63 letters is nobody's, and no server is asked


@pytest.mark.parametrize("literal", ["127.0.0.1", "::1", "10.1.2.3"])
def test_a_literal_is_known_without_asking(literal):
    resolver = testing.Resolver()
    assert resolver.known(literal) == [literal]
    assert resolver.resolve(literal) == [literal]


def test_a_name_is_known_once_it_was_resolved():
    resolver = testing.Resolver()
    assert resolver.known("localhost") is None
    addresses = resolver.resolve("localhost")
    assert set(addresses) & {"127.0.0.1", "::1"}
    assert resolver.known("localhost") == addresses
    assert resolver.resolve("localhost") == addresses


def test_a_name_without_an_address_is_an_error_that_names_it():
    resolver = testing.Resolver()
    with pytest.raises(ValueError, match=f"UNAVAILABLE: the name '{NO_NAME}' has no address: "):
        resolver.resolve(NO_NAME)
    assert resolver.known(NO_NAME) is None
