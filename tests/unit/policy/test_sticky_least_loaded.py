"""cpp/policy/sticky_least_loaded.h: a session stays where it was put; new ones go where there are fewest."""

import threading
from collections import Counter

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing


def policy(weights=(1.0, 1.0, 1.0), **options):
    policy = testing.PolicyHarness("sticky_least_loaded", **options)
    policy.add_all([(f"http://w{i + 1}:8000", weight) for i, weight in enumerate(weights)])
    return policy


def test_new_sessions_are_dealt_out_evenly_and_stay():
    """mending row 24"""
    sticky = policy()
    first = {f"s{i}": sticky.choose(session=f"s{i}") for i in range(30)}
    assert Counter(position for position, _ in first.values()) == {0: 10, 1: 10, 2: 10}
    assert {reason for _, reason in first.values()} == {"sticky_new"}
    for session, (position, _) in first.items():
        assert sticky.choose(session=session) == (position, "sticky")


def test_by_weight():
    sticky = policy((3.0, 1.0))
    assert Counter(sticky.choose(session=f"s{i}")[0] for i in range(40)) == {0: 30, 1: 10}


def test_of_equals_the_least_loaded():
    sticky = policy()
    sticky.set_load("http://w1:8000", 2)
    sticky.set_load("http://w2:8000", 1)
    assert sticky.choose(session="a") == (2, "sticky_new")
    assert sticky.choose(session="b") == (1, "sticky_new")
    assert sticky.choose(session="c") == (0, "sticky_new")


def test_a_session_moves_for_good_when_its_worker_is_not_eligible():
    sticky = policy()
    home, _ = sticky.choose(session="a")
    moved, reason = sticky.choose(session="a", tried=[home])
    assert (moved != home, reason) == (True, "failover")
    assert sticky.choose(session="a") == (moved, "sticky")


def test_a_finished_session_is_a_new_one():
    sticky = policy()
    sticky.choose(session="a")
    assert sticky.sessions == 1
    assert sticky.finish_session("a")
    assert not sticky.finish_session("a")
    assert sticky.sessions == 0
    assert sticky.choose(session="a")[1] == "sticky_new"


def test_the_least_recently_used_makes_room():
    sticky = policy(max_sessions=2)
    for session in ("a", "b", "c"):
        sticky.choose(session=session)
    assert sticky.sessions == 2
    assert sticky.choose(session="b")[1] == "sticky"
    assert sticky.choose(session="a")[1] == "sticky_new"


def test_no_session_no_entry():
    """The digest of a body is no session: each prompt would be one."""
    router = Router(policy="manual", worker_urls=["http://a", "http://b"])
    assert router.select(body=b'{"prompt": "x"}').reason == "fallback"
    first = router.select(body=b'{"prompt": "x", "session_id": "s"}')
    assert (first.reason, router.policy) == ("sticky_new", "sticky_least_loaded")
    again = router.select(body=b'{"prompt": "y", "session_id": "s"}')
    assert (again.worker_url, again.reason) == (first.worker_url, "sticky")


@pytest.mark.parametrize(
    "named",
    [
        {"headers": {"X-Session-ID": "s 1"}},
        {"headers": {"X-User-ID": "s 1"}},
        {"body": b'{"session_id": "s 1"}'},
        {"body": b'{"user": "s 1"}'},
        {"body": b'{"session_params": {"session_id": "s 1"}}'},
    ],
)
def test_a_session_is_finished_by_its_id_wherever_it_was_named(named):
    router = Router(policy="sticky_least_loaded", worker_urls=["http://a", "http://b"])
    assert router.select(**named).reason == "sticky_new"
    assert router.select(**named).reason == "sticky"
    assert router.finish_session("s 1")
    assert not router.finish_session("s 1")
    assert router.select(**named).reason == "sticky_new"


def test_requests_of_one_new_session_get_one_worker():
    sticky = Router(policy="sticky_least_loaded", worker_urls=[f"http://w{i}" for i in range(8)])
    chosen: list[set[str]] = [set() for _ in range(200)]
    barrier = threading.Barrier(4)

    def ask():
        barrier.wait()
        for number, workers in enumerate(chosen):
            workers.add(sticky.select(headers={"X-Session-ID": f"s{number}"}).worker_url)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {len(workers) for workers in chosen} == {1}
    assert set(Counter(url for workers in chosen for url in workers).values()) == {25}
