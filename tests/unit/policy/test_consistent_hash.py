"""cpp/policy/consistent_hash.h: the vectors and checks of its page."""

from fractions import Fraction

import pytest

from tests.models.fleet import Fleet
from tests.models.policies import cap, make_policy
from vllm_router import _core_testing as testing

SESSIONS = [f"header:x-session-id:sess-{i}" for i in range(8)]
MANY = [f"header:x-session-id:sess-{i}" for i in range(3000)]


def policy(workers=3, weights=None, **options):
    policy = testing.PolicyHarness("consistent_hash", **options)
    policy.add_all([(f"http://w{i + 1}:8000", weights[i] if weights else 1.0) for i in range(workers)])
    return policy


def workers_of(policy, sessions, **kind):
    return [policy.choose(session=session, **kind)[0] + 1 for session in sessions]


@pytest.mark.parametrize(
    ("key", "worker"),
    [
        ("header:x-session-id:conversation-12345", 3),
        ("header:x-request-id:req-789", 3),
        ("header:x-correlation-id:corr-001", 2),
        ("session:conversation-12345", 3),
        ("request:conversation-12345", 1),
        ("user:user-67890", 1),
        ("header:x-user-id:user-456", 2),
        ("header:x-tenant-id:tenant-xyz", 1),
    ],
)
def test_keys_have_the_reference_routers_home(key, worker):
    assert policy().choose(session=key) == (worker - 1, "session_hash")


def test_a_bodys_digest_has_the_reference_routers_home():
    assert policy().choose(body="request_hash:45341b7a824b0d89") == (0, "body_hash")


def test_sessions_of_the_document_have_their_homes():
    three = policy()
    assert workers_of(three, SESSIONS) == [1, 1, 1, 2, 1, 3, 3, 1]
    assert {three.choose(session=session)[1] for session in SESSIONS} == {"session_hash"}


@pytest.mark.parametrize(
    ("failover", "expected"), [("next", [2, 3, 2, 2, 2, 3, 3, 3]), ("first", [2, 2, 2, 2, 2, 3, 3, 2])]
)
@pytest.mark.parametrize("how", ["unhealthy", "draining", "tried"])
def test_without_their_home_sessions_fail_over(failover, expected, how):
    three = policy(hash_failover=failover)
    tried = []
    if how == "unhealthy":
        three.set_healthy("http://w1:8000", False)
    elif how == "draining":
        three.set_draining("http://w1:8000", True)
    else:
        tried = [0]
    assert workers_of(three, SESSIONS, tried=tried) == expected
    reasons = [three.choose(session=session, tried=tried)[1] for session in SESSIONS]
    assert reasons == ["session_hash" if home != 1 else "failover" for home in (1, 1, 1, 2, 1, 3, 3, 1)]
    assert three.choose(body="request_hash:45341b7a824b0d89", tried=tried)[1] == "failover"


def test_ranks_are_workers_with_points_of_their_own():
    ranks = testing.PolicyHarness("consistent_hash")
    ranks.add_all([("http://w:8000@0", 1.0), ("http://w:8000@1", 1.0)])
    assert [ranks.choose(session=session)[0] for session in SESSIONS] == [0, 0, 0, 1, 1, 1, 1, 0]


def test_shares_over_30000_sessions_are_those_of_the_document():
    sessions = [f"header:x-session-id:sess-{i}" for i in range(30_000)]
    chosen = policy().choose_many(sessions)
    assert [round(chosen.count(i) / 300, 1) for i in range(3)] == [33.8, 31.9, 34.3]


def test_a_worker_that_comes_back_gets_exactly_its_sessions_back():
    four = policy(4)
    homes = four.choose_many(MANY)
    four.set_healthy("http://w2:8000", False)
    away = four.choose_many(MANY)
    assert all(a == b for a, b in zip(homes, away, strict=True) if a != 1)
    four.set_draining("http://w3:8000", True)
    four.set_healthy("http://w2:8000", True)
    four.set_draining("http://w3:8000", False)
    assert four.choose_many(MANY) == homes


def test_removing_a_member_moves_only_its_own_keys():
    four = policy(4)
    before = [four.urls[i] for i in four.choose_many(MANY)]
    four.remove("http://w2:8000")
    after = [four.urls[i] for i in four.choose_many(MANY)]
    assert all(a == b for a, b in zip(before, after, strict=True) if a != "http://w2:8000")


@pytest.mark.parametrize("function", ["furc", "xxh3"])
def test_adding_a_member_moves_keys_only_to_it_and_not_more_than_its_share(function):
    four = policy(4, hash_function=function)
    before = four.choose_many(MANY)
    four.add("http://w5:8000")
    after = four.choose_many(MANY)
    moved = [b for a, b in zip(before, after, strict=True) if a != b]
    assert set(moved) == {4}
    # A share of 160 points spreads by 1/sqrt(160) of itself around a fifth.
    assert len(moved) <= len(MANY) / 5 * (1 + 4 / 160**0.5)


def test_next_equals_a_ring_of_the_eligible():
    five = policy(5)
    five.set_healthy("http://w2:8000", False)
    five.set_draining("http://w5:8000", True)
    without = testing.PolicyHarness("consistent_hash")
    without.add_all([(f"http://w{i}:8000", 1.0) for i in (1, 3, 4)])
    assert [five.urls[i] for i in five.choose_many(MANY)] == [
        without.urls[i] for i in without.choose_many(MANY)
    ]


def test_first_pours_all_on_one_neighbour_and_next_spreads_it():
    gone = [session for session in MANY if policy(4).choose(session=session)[0] == 0]
    for failover, heirs in (("first", {1}), ("next", {1, 2, 3})):
        four = policy(4, hash_failover=failover)
        assert {four.choose(session=session, tried=[0])[0] for session in gone} == heirs


def test_loads_are_ignored_unless_a_bound_is_set():
    three = policy()
    three.set_load("http://w1:8000", 10_000)
    assert workers_of(three, SESSIONS) == [1, 1, 1, 2, 1, 3, 3, 1]


def test_a_home_without_room_overflows_clockwise():
    # Cap of each with factor 1.25 and 10 open requests over 3 workers: ceil(1.25 * 11 / 3) = 5.
    three = policy(hash_load_factor=1250)
    three.set_load("http://w1:8000", 5)
    three.set_load("http://w2:8000", 4)
    three.set_load("http://w3:8000", 1)
    assert three.caps(1250) == [5, 5, 5]
    answers = [three.choose(session=session) for session in SESSIONS]
    # As if w1 were not there, only the reason differs.
    assert [position + 1 for position, _ in answers] == [2, 3, 2, 2, 2, 3, 3, 3]
    assert {
        reason for (_, reason), home in zip(answers, (1, 1, 1, 2, 1, 3, 3, 1), strict=True) if home == 1
    } == {"overflow"}
    three.set_load("http://w1:8000", 4)
    assert workers_of(three, SESSIONS) == [1, 1, 1, 2, 1, 3, 3, 1]


@pytest.mark.parametrize("failover", ["next", "first"])
def test_a_failover_also_wants_room(failover):
    three = policy(hash_load_factor=1000, hash_failover=failover)
    three.set_load("http://w2:8000", 9)
    three.set_healthy("http://w1:8000", False)
    for session in SESSIONS:
        position, reason = three.choose(session=session)
        assert position == 2
        assert reason in ("failover", "overflow", "session_hash")


@pytest.mark.parametrize("factor", [1000, 1250, 3000])
def test_no_worker_is_filled_past_its_bound(factor, rng):
    workers = 8
    bounded = policy(workers, hash_load_factor=factor)
    fleet = Fleet()
    for url in bounded.urls:
        fleet.add(url)
    hot = [f"header:x-session-id:hot-{i}" for i in range(3)]
    for step in range(400):
        session = rng.choice(hot) if step % 2 else f"header:x-session-id:cold-{step}"
        position, _ = bounded.choose(session=session)
        worker = fleet.members[position]
        assert worker.requests < cap(fleet, fleet.eligible(), position, Fraction(factor, 1000))
        worker.requests += 1
        bounded.set_load(worker.url, worker.requests)
    assert max(w.requests for w in fleet.members) <= factor / 1000 * 400 / workers + 1


def test_weights_are_points():
    weighted = policy(3, [1, 2, 4], hash_function="xxh3")
    chosen = weighted.choose_many(MANY)
    for i, share in enumerate((1 / 7, 2 / 7, 4 / 7)):
        assert chosen.count(i) / len(MANY) == pytest.approx(share, rel=0.25)


@pytest.mark.parametrize("weights", [[1, 0.01], [1.499, 1.5], [0.3, 0.25]])
@pytest.mark.parametrize("virtual_nodes", [1, 2, 5])
def test_points_are_rounded_to_the_nearest_and_one_at_least(weights, virtual_nodes):
    options = {"virtual_nodes": virtual_nodes, "hash_function": "xxh3"}
    weighted, slow, fleet = policy(2, weights, **options), make_policy("consistent_hash", **options), Fleet()
    for i, weight in enumerate(weights):
        fleet.add(f"http://w{i + 1}:8000", round(1000 * weight))
    assert weighted.choose_many(MANY[:500]) == [slow.choose(("session", key), fleet)[0] for key in MANY[:500]]


def test_the_ring_is_of_this_fleet_whatever_changed_in_between(rng):
    changing = policy(2)
    for number in range(3, 9):
        changing.add(f"http://w{number}:8000")
        changing.set_healthy(rng.choice(changing.urls), False)
        if number % 2:
            changing.remove(f"http://w{number}:8000")
    for url in changing.urls:
        changing.set_healthy(url, True)
    fresh = testing.PolicyHarness("consistent_hash")
    fresh.add_all([(url, 1.0) for url in changing.urls])
    assert changing.choose_many(MANY) == fresh.choose_many(MANY)


def test_a_view_that_nobody_planned_for_is_answered_alike():
    three = policy()
    assert [three.choose_unplanned(session)[0] + 1 for session in SESSIONS] == [1, 1, 1, 2, 1, 3, 3, 1]


@pytest.mark.slow
def test_a_ring_has_a_limit_and_keeps_its_shares_there():
    # 2 * 6,553,600 points are asked for; the ring takes 2^23, in the same proportion.
    huge = testing.PolicyHarness("consistent_hash", virtual_nodes=65_536, hash_function="xxh3")
    huge.add_all([("http://w1:8000", 100.0), ("http://w2:8000", 100.0)])
    chosen = huge.choose_many(MANY)
    assert chosen.count(0) / len(MANY) == pytest.approx(0.5, abs=0.05)
