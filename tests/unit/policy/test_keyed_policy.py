"""cpp/policy/keyed_policy.h: what becomes of a request without a key."""

import pytest

from vllm_router import _core_testing as testing

HASH_POLICIES = ["consistent_hash", "rendezvous_hash"]


def policy(name, weights=(1.0, 1.0, 1.0), **options):
    policy = testing.PolicyHarness(name, **options)
    policy.add_all([(f"http://w{i + 1}:8000", weight) for i, weight in enumerate(weights)])
    return policy


@pytest.mark.parametrize("name", HASH_POLICIES)
@pytest.mark.parametrize("fallback", ["random", "round_robin", "least_load", "power_of_two"])
def test_the_fallback_decides_without_a_key_as_it_would_alone(name, fallback):
    keyed = policy(name, (5.0, 1.0, 1.0), fallback_policy=fallback, seed=4)
    alone = policy(fallback, (5.0, 1.0, 1.0), seed=4)
    for step in range(200):
        if step == 100:
            for each in (keyed, alone):
                each.set_draining("http://w2:8000", True)
        tried = [0] if step % 7 == 3 else []
        assert keyed.choose(tried=tried) == (alone.choose(tried=tried)[0], "fallback")
        assert keyed.choose(session=f"s{step}")[1] in ("session_hash", "failover")


@pytest.mark.parametrize("name", HASH_POLICIES)
def test_the_default_fallback_is_least_load(name):
    keyed = policy(name)
    keyed.set_load("http://w1:8000", 2)
    keyed.set_load("http://w3:8000", 1)
    assert keyed.choose() == (1, "fallback")


@pytest.mark.parametrize("name", HASH_POLICIES)
def test_an_empty_key_is_a_key(name):
    assert policy(name).choose(session="")[1] == "session_hash"


@pytest.mark.parametrize("name", HASH_POLICIES)
def test_they_need_the_session_or_the_bodys_digest(name):
    assert policy(name).needs == 3
