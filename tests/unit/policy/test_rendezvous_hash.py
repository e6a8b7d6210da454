"""cpp/policy/rendezvous_hash.h: the vectors and checks of its page."""

import pytest

from tests.models.hashing import ring_hash, xxh3
from vllm_router import _core_testing as testing

SESSIONS = [f"header:x-session-id:sess-{i}" for i in range(8)]
MANY = [f"header:x-session-id:sess-{i}" for i in range(2000)]


def policy(workers=(1, 2, 3), weights=None, **options):
    policy = testing.PolicyHarness("rendezvous_hash", **options)
    policy.add_all([(f"http://w{w}:8000", weights[i] if weights else 1.0) for i, w in enumerate(workers)])
    return policy


def urls_of(policy, sessions):
    return [policy.urls[i] for i in policy.choose_many(sessions)]


def test_sessions_of_the_document_have_their_homes():
    three = policy()
    assert [i + 1 for i in three.choose_many(SESSIONS)] == [1, 2, 3, 2, 1, 3, 2, 1]
    assert {three.choose(session=session)[1] for session in SESSIONS} == {"session_hash"}
    assert {three.choose(body=session)[1] for session in SESSIONS} == {"body_hash"}


def test_without_their_home_sessions_go_to_their_second_choice():
    three = policy()
    three.set_healthy("http://w1:8000", False)
    assert [i + 1 for i in three.choose_many(SESSIONS)] == [3, 2, 3, 2, 2, 3, 2, 2]
    reasons = [three.choose(session=session)[1] for session in SESSIONS]
    assert reasons == ["failover" if home == 1 else "session_hash" for home in (1, 2, 3, 2, 1, 3, 2, 1)]


def test_the_choice_maximises_the_score():
    urls = [f"http://w{i}:8000" for i in range(1, 6)]
    furc, fast = policy(range(1, 6)), policy(range(1, 6), hash_function="xxh3")
    for session in MANY[:100]:
        assert furc.choose(session=session)[0] == max(
            range(5),
            key=lambda i: ring_hash("furc", f"{session}:{urls[i]}".encode()),
        )
        assert fast.choose(session=session)[0] == max(
            range(5),
            key=lambda i: xxh3(b"".join(xxh3(s.encode()).to_bytes(8, "little") for s in (session, urls[i]))),
        )


@pytest.mark.parametrize("function", ["furc", "xxh3"])
@pytest.mark.parametrize("weights", [None, [1, 2, 3, 4]])
def test_removing_a_worker_moves_only_its_keys(function, weights):
    four = policy((1, 2, 3, 4), weights, hash_function=function)
    before = urls_of(four, MANY)
    four.remove("http://w2:8000")
    after = urls_of(four, MANY)
    assert all(a == b for a, b in zip(before, after, strict=True) if a != "http://w2:8000")
    assert "http://w2:8000" not in after


@pytest.mark.parametrize("function", ["furc", "xxh3"])
def test_the_order_of_registration_does_not_matter(function):
    assert urls_of(policy((1, 2, 3, 4), hash_function=function), MANY) == urls_of(
        policy((3, 1, 4, 2), hash_function=function), MANY
    )


@pytest.mark.parametrize("function", ["furc", "xxh3"])
def test_equal_weights_choose_as_no_weights_do(function):
    assert policy(hash_function=function).choose_many(MANY) == policy(
        weights=[3, 3, 3], hash_function=function
    ).choose_many(MANY)


@pytest.mark.parametrize("function", ["furc", "xxh3"])
def test_shares_are_proportional_to_weights(function):
    chosen = policy((1, 2, 3), [1, 2, 5], hash_function=function).choose_many(MANY)
    for i, share in enumerate((1 / 8, 2 / 8, 5 / 8)):
        spread = (share * (1 - share) / len(MANY)) ** 0.5
        assert abs(chosen.count(i) / len(MANY) - share) < 4.5 * spread


def test_raising_a_weight_draws_keys_only_to_that_worker():
    before = policy(weights=[1, 2, 3]).choose_many(MANY)
    after = policy(weights=[1, 4, 3]).choose_many(MANY)
    assert {b for a, b in zip(before, after, strict=True) if a != b} == {1}


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 200_000])
def test_keys_of_any_length_are_placed(size):
    key = "k" * size
    scores = [ring_hash("furc", f"{key}:http://w{i}:8000".encode()) for i in (1, 2, 3)]
    three = policy()
    assert three.choose(session=key)[0] == scores.index(max(scores))
    assert [i + 1 for i in three.choose_many(SESSIONS)] == [1, 2, 3, 2, 1, 3, 2, 1], (
        "what was hashed before is gone"
    )


def test_a_view_that_nobody_planned_for_is_answered_alike():
    for function in ("furc", "xxh3"):
        weighted = policy(weights=[1, 2, 3], hash_function=function)
        assert [weighted.choose_unplanned(session) for session in SESSIONS] == [
            weighted.choose(session=session) for session in SESSIONS
        ]
