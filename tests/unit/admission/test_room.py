"""cpp/admission/room.h: which workers have room for which class."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

OPEN, GATED, IDLE_ONLY = testing.ClassGate.open, testing.ClassGate.gated, testing.ClassGate.idle_only
BUSY = {"open": 500, "waiting": 40, "queued_prefill": 90_000, "tokens": 900, "capacity": 1000, "kv_usage": 1}


def worker(**facts):
    return {"capacity": 1000, **facts}


@pytest.mark.parametrize(
    ("facts", "gated", "idle_only"),
    [
        ({}, "none", "none"),
        ({"open": 50}, "none", "none"),
        ({"open": 1, "waiting": 1, "queued_prefill": 2047}, "none", "waiting"),
        ({"open": 1, "waiting": 1, "queued_prefill": 2048}, "prefill", "prefill"),
        ({"open": 1, "waiting": 1, "kv_usage": 0.0, "reported_waiting": 1}, "none", "waiting"),
        ({"open": 1, "waiting": 1, "kv_usage": 0.0, "reported_waiting": 2}, "waiting", "waiting"),
        ({"kv_usage": 0.49}, "none", "none"),
        ({"kv_usage": 0.5}, "none", "kv"),
        ({"kv_usage": 0.95}, "kv", "kv"),
        ({"kv_usage": 0.2, "sent": 300}, "none", "kv"),
        ({"kv_usage": 0.2, "sent": 750}, "kv", "kv"),
        ({"open": 3, "tokens": 500}, "none", "kv"),
        ({"open": 3, "tokens": 950}, "kv", "kv"),
    ],
)
def test_what_closes_a_worker(facts, gated, idle_only):
    assert testing.room_of(worker(**facts), GATED) == gated
    assert testing.room_of(worker(**facts), IDLE_ONLY, kv_ceiling=0.5) == idle_only
    assert testing.room_of(worker(**facts), OPEN) == "none"


def test_the_limit_of_requests_is_every_class_s():
    for gate in (OPEN, GATED, IDLE_ONLY):
        assert testing.room_of(worker(open=4), gate, max_requests=4) == "requests"
        assert testing.room_of(worker(open=3), gate, max_requests=4) == "none"


@pytest.mark.parametrize(("workers", "prefills"), [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)])
def test_an_idle_only_class_has_half_of_the_workers_beside_a_higher_one(workers, prefills):
    def room(gate, running, active=True):
        return testing.room_of(
            worker(), gate, workers=workers, idle_only_prefills=running, higher_class_active=active
        )

    assert room(IDLE_ONLY, prefills - 1) == "none"
    assert room(IDLE_ONLY, prefills) == "half"
    assert room(IDLE_ONLY, prefills, active=False) == "none"
    assert room(GATED, prefills) == "none"


def test_its_ceiling_applies_beside_a_higher_class_alone():
    for usage, alone in ((0.5, "none"), (0.94, "none"), (0.95, "kv")):
        facts = worker(kv_usage=usage)
        assert testing.room_of(facts, IDLE_ONLY, kv_ceiling=0.5) == "kv"
        assert testing.room_of(facts, IDLE_ONLY, kv_ceiling=0.5, higher_class_active=False) == alone


def test_what_is_unknown_opens():
    assert testing.kv_usage({"tokens": 900}) is None
    assert testing.room_of({"open": 1, "tokens": 900}, GATED) == "none"
    assert testing.room_of(worker(open=1, tokens=10), IDLE_ONLY, kv_ceiling=0.5) == "none"


def test_without_a_capacity_the_report_alone_counts():
    assert testing.kv_usage({"open": 1, "tokens": 900, "sent": 900, "kv_usage": 0.6}) == pytest.approx(0.6)
    assert testing.room_of({"open": 1, "kv_usage": 0.96}, GATED) == "kv"


def test_a_report_of_nothing_is_bounded_by_the_own_counters():
    assert testing.kv_usage(worker(open=9, tokens=800, kv_usage=0.0)) == pytest.approx(0.8)
    assert testing.kv_usage(worker(open=9, tokens=100, kv_usage=0.3, sent=50)) == pytest.approx(0.35)


@pytest.mark.parametrize("lie", [{"kv_usage": 1.0}, {"kv_usage": 0.0, "reported_waiting": 5}])
def test_a_report_that_nothing_here_explains_is_ignored_after_a_minute(lie):
    for seconds, gated in ((0, False), (59, False), (60, True), (3600, True)):
        facts = worker(idle_seconds=seconds, **lie)
        assert (testing.room_of(facts, GATED) == "none") == gated
        assert testing.room_of({**facts, "open": 1}, GATED) != "none"


def test_a_usual_report_counts_however_long_nothing_was_open():
    assert testing.room_of(worker(idle_seconds=3600, kv_usage=0.6), IDLE_ONLY, kv_ceiling=0.5) == "kv"


FACTS = st.fixed_dictionaries(
    {},
    optional={
        "open": st.integers(0, 9),
        "waiting": st.integers(0, 3),
        "queued_prefill": st.sampled_from([0, 1, 2047, 2048, 9000]),
        "tokens": st.integers(0, 1200),
        "capacity": st.sampled_from([0, 1000]),
        "kv_usage": st.sampled_from([0.0, 0.3, 0.5, 0.94, 0.95, 1.0]),
        "reported_waiting": st.integers(0, 3),
        "sent": st.integers(0, 1200),
        "idle_seconds": st.sampled_from([0, 59, 60]),
    },
)
POOLS = st.fixed_dictionaries(
    {"workers": st.integers(1, 5), "idle_only_prefills": st.integers(0, 5), "max_requests": st.integers(0, 9)}
)


@given(FACTS, POOLS)
def test_a_worker_with_room_for_a_class_has_room_for_every_class_above(facts, pool):
    rooms = [
        testing.room_of(facts, gate, kv_ceiling=ceiling, **pool) == "none"
        for gate, ceiling in ((OPEN, 0.95), (GATED, 0.95), (GATED, 0.9), (IDLE_ONLY, 0.9), (IDLE_ONLY, 0.5))
    ]
    assert rooms == sorted(rooms, reverse=True)


@given(FACTS, POOLS, st.sampled_from([OPEN, GATED, IDLE_ONLY]), st.booleans())
def test_a_lost_report_and_an_unknown_capacity_close_nothing(facts, pool, gate, active):
    pool = {**pool, "higher_class_active": active}
    if testing.room_of(facts, gate, kv_ceiling=0.5, **pool) != "none":
        return
    blind = {name: value for name, value in facts.items() if name not in ("kv_usage", "reported_waiting")}
    for fewer in (blind, {**facts, "capacity": 0}):
        assert testing.room_of(fewer, gate, kv_ceiling=0.5, **pool) == "none"


@given(FACTS, st.sampled_from(["open", "waiting", "queued_prefill", "tokens", "sent", "reported_waiting"]))
def test_more_load_opens_nothing(facts, what):
    """But for the first request, which does not make a report credible that was ignored before."""
    more = {**facts, what: facts.get(what, 0) + 1}
    if what == "waiting" or facts.get("idle_seconds"):
        return
    for gate, ceiling in itertools.product((OPEN, GATED, IDLE_ONLY), (0.5, 0.95)):
        before = testing.room_of(facts, gate, kv_ceiling=ceiling, max_requests=5)
        after = testing.room_of(more, gate, kv_ceiling=ceiling, max_requests=5)
        assert not (before != "none" and after == "none")


def test_a_worker_with_everything_is_closed_for_all_but_the_highest():
    assert [testing.room_of(BUSY, gate) != "none" for gate in (OPEN, GATED, IDLE_ONLY)] == [False, True, True]
