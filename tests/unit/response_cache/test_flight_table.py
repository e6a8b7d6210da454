"""cpp/response_cache/flight_table.h against tests/models/flight_table.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.flight_table import FlightTable
from vllm_router import _core_testing as testing

ALONE = testing.FlightTable.alone_ns
KEY = b"k" * 32


def key(number):
    return number.to_bytes(32, "little")


def test_equal_requests_get_the_response_of_the_first():
    table = testing.FlightTable()
    assert [table.join(request, KEY, True, 0) for request in range(3)] == ["leads", "follows", "follows"]
    assert table.has_followers(0)
    table.finish(0, "shared", "text")
    assert table.take_news() == [(1, "response", b"text"), (2, "response", b"text")]
    assert table.stats()["flights"] == table.stats()["followers"] == 0
    assert table.join(3, KEY, True, 0) == "leads"


def test_a_failure_is_not_shared_but_the_next_one_leads():
    table = testing.FlightTable(promotions=2)
    for request in range(5):
        table.join(request, KEY, True, 0)
    table.finish(0, "failed")
    assert table.take_news() == [(1, "lead", None)]
    assert table.join(5, KEY, True, 0) == "follows"
    table.abandon(1)  # a leader whose request was destroyed
    assert table.take_news() == [(2, "lead", None)]
    table.finish(2, "failed")
    assert table.take_news() == [(3, "alone", None), (4, "alone", None), (5, "alone", None)]
    assert table.stats() == {
        "flights": 0, "followers": 0, "alone_keys": 0, "shared": 0, "promoted": 2, "alone": 3,
    }  # fmt: skip


def test_what_cannot_be_shared_is_not_waited_for_a_minute_long():
    table = testing.FlightTable()
    table.join(0, KEY, True, 0)
    table.join(1, KEY, True, 0)
    table.finish(0, "not shareable", now_ns=5)
    assert table.take_news() == [(1, "alone", None)]
    assert table.join(2, KEY, True, 5 + ALONE - 1) == "alone"
    assert table.join(3, b"o" * 32, True, 5) == "leads"
    assert table.join(4, KEY, True, 5 + ALONE) == "leads"


def test_one_that_leaves_is_told_nothing():
    table = testing.FlightTable()
    for request in range(3):
        table.join(request, KEY, True, 0)
    assert table.leave(1)
    assert not table.leave(1)
    table.finish(0, "shared", "text")
    assert table.take_news() == [(2, "response", b"text")]
    assert not table.leave(2)  # it has been told


def test_so_many_may_follow_one():
    table = testing.FlightTable(followers=2)
    assert [table.join(request, KEY, True, 0) for request in range(4)] == [
        "leads",
        "follows",
        "follows",
        "alone",
    ]
    assert table.join(4, KEY, False, 0) == "alone"


def test_keys_that_are_not_shared_are_bounded():
    table = testing.FlightTable()
    one_part = [bytes(32 - 4) + number.to_bytes(4, "big") for number in range(5_000)]
    for request, each in enumerate(one_part):
        table.join(request, each, True, 0)
        table.finish(request, "not shareable")
    assert table.stats()["alone_keys"] == 4_096
    assert table.join(9_999, one_part[-1], True, 1) == "alone"
    assert table.join(10_000, one_part[0], True, 1) == "leads"


steps = st.one_of(
    st.tuples(st.just("join"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("leave"), st.integers(0, 40)),
    st.tuples(st.just("finish"), st.integers(0, 40), st.sampled_from(["shared", "not shareable", "failed"])),
    st.tuples(st.just("wait"), st.sampled_from([1, ALONE // 2, ALONE])),
)


@given(st.integers(0, 3), st.integers(0, 2), st.lists(steps, max_size=60))
def test_a_table_is_its_slow_twin(followers, promotions, history):
    table, twin = testing.FlightTable(followers, promotions), FlightTable(followers, promotions, ALONE)
    now, requests, told = 0, 0, {}
    waiting = set()
    for name, *arguments in history:
        leaders = [flight[1] for flight in twin.flights]
        if name == "wait":
            now += arguments[0]
        elif name == "join":
            requests += 1
            role = table.join(requests, key(arguments[0]), arguments[1], now)
            assert role == twin.join(requests, key(arguments[0]), arguments[1], now)
            if role == "follows":
                waiting.add(requests)
        elif name == "leave" and waiting:
            request = sorted(waiting)[arguments[0] % len(waiting)]
            assert table.leave(request) == twin.leave(request)
            waiting.discard(request)
        elif name == "finish" and leaders:
            leader = leaders[arguments[0] % len(leaders)]
            assert table.has_followers(leader) == twin.has_followers(leader)
            table.finish(leader, arguments[1], "text", now)
            twin.finish(leader, arguments[1], b"text", now)
        news = table.take_news()
        assert news == twin.take_news()
        for request, what, _ in news:
            assert request in waiting
            waiting.discard(request)
            assert told.setdefault(request, what) == what, "a follower is told once"
    assert table.stats()["flights"] == len(twin.flights)
    assert table.stats()["followers"] == len(waiting)


def test_an_unknown_end_is_rejected_by_the_harness():
    table = testing.FlightTable()
    table.join(0, KEY, True, 0)
    with pytest.raises(ValueError, match="unknown end"):
        table.finish(0, "lost")
