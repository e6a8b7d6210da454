"""cpp/policy/policy.h: what holds for every policy (docs/reference/policies.md, invariants)."""

import pytest

from vllm_router import _core_testing as testing

EVERY = pytest.mark.parametrize("name", testing.policy_names())


@EVERY
def test_nobody_is_chosen_exactly_when_nobody_is_eligible(name):
    policy = testing.PolicyHarness(name)
    assert policy.choose(session="s") is None
    assert policy.choose() is None
    policy.add("http://a:8000")
    policy.add("http://b:8000")
    assert policy.choose(session="s", tried=[0, 1]) is None
    policy.set_healthy("http://a:8000", False)
    policy.set_draining("http://b:8000", True)
    assert policy.choose(session="s") is None
    assert policy.choose() is None
    policy.set_draining("http://b:8000", False)
    assert policy.choose(session="s")[0] == 1


@EVERY
def test_a_single_worker_is_chosen_for_every_key(name):
    policy = testing.PolicyHarness(name, seed=3)
    policy.add("http://a:8000@1", 2.5)
    assert {policy.choose(session=f"s{i}")[0] for i in range(50)} == {0}
    assert {policy.choose(body=f"s{i}")[0] for i in range(50)} == {0}
    assert {policy.choose()[0] for _ in range(50)} == {0}


# They take the heaviest worker of an idle fleet.
BY_LEAST = ("least_load", "auto", "kv_logit", "kv_aware")


@EVERY
def test_a_removed_worker_is_never_chosen_again(name):
    policy = testing.PolicyHarness(name, seed=3)
    policy.add_all([(f"http://w{i}:8000", 1.0 + i) for i in range(4)])
    policy.remove("http://w1:8000")
    chosen = {policy.urls[policy.choose(session=f"s{i}")[0]] for i in range(400)}
    assert chosen == {"http://w0:8000", "http://w2:8000", "http://w3:8000"} or name in BY_LEAST
    assert "http://w1:8000" not in chosen


@EVERY
def test_equal_seeds_and_questions_have_equal_answers(name):
    def answers():
        policy = testing.PolicyHarness(name, seed=77)
        policy.add_all([(f"http://w{i}:8000", 1.0) for i in range(5)])
        return [policy.choose(session=f"s{i}" if i % 3 else None, tried=[i % 5][: i % 2]) for i in range(300)]

    assert answers() == answers()


@EVERY
def test_threads_may_ask_at_once(name):
    policy = testing.PolicyHarness(name)
    policy.add_all([(f"http://w{i}:8000", 1.0 + i % 2) for i in range(5)])
    assert sum(policy.choose_in_threads(4, 2000)) == 8000


@EVERY
def test_the_name_is_the_canonical_one(name):
    assert testing.PolicyHarness(name).name == name
    assert testing.PolicyHarness(name.replace("_", "-").upper()).name == name
