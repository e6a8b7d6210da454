"""Which key a request brings. Who gets in with it is the matter of tests/proxy/test_keys.py."""

import pytest

from vllm_router import _core_testing as testing


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ([], ""),
        ([("Accept", "*/*")], ""),
        ([("Authorization", "Bearer k")], "k"),
        ([("AUTHORIZATION", "bEARER   k ")], "k"),
        ([("x-api-key", "k")], "k"),
        ([("X-API-Key", "other"), ("Authorization", "Bearer k")], "k"),
        ([("Authorization", "Basic k")], None),
        ([("Authorization", "")], None),
        ([("Authorization", "Bearer")], None),
        ([("Authorization", "Bearer a"), ("Authorization", "Bearer a")], None),
        ([("x-api-key", "a"), ("x-api-key", "a")], None),
        ([("Authorization", "Basic k"), ("x-api-key", "k")], None),
        ([("x-api-keys", "k"), ("authorizatiom", "Bearer k")], ""),
    ],
)
def test_the_key_of_a_request(fields, key):
    assert testing.key_of(fields) == key
