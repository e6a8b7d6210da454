"""cpp/disaggregation/pd_registrations.h: which workers are here, and what changes that.

registered --silent 5 s--> silent --silent 60 s--> removed
"""

import pytest

from vllm_router._core_testing import PdRegistrations

SECOND = 10**9


def worker(address="a:1", role="prefill", mode=None, zmq="a:2", tp_size=1):
    return {
        "role": role,
        "http_address": address,
        "zmq_address": zmq,
        "mode": mode,
        "tp_size": tp_size,
        "dp_size": 1,
    }


@pytest.fixture
def table():
    return PdRegistrations(60 * SECOND)


def test_a_worker_is_added_once_and_kept_by_its_messages(table):
    assert table.register(worker(), 0) == ("taken", [("added", worker())])
    for second in range(3, 300, 3):
        assert table.register(worker(), second * SECOND) == ("taken", [])
    assert (table.size(), table.eligible("prefill"), table.eligible("decode")) == (1, 1, 0)


def test_after_5_seconds_of_silence_it_is_not_eligible(table):
    table.register(worker(), 0)
    assert table.next_expiry_ns() == 5 * SECOND
    assert table.expire(5 * SECOND - 1) == []
    assert table.eligible("prefill") == 1
    assert table.expire(5 * SECOND) == [("silenced", worker())]
    assert (table.size(), table.eligible("prefill")) == (1, 0)
    assert table.expire(6 * SECOND) == []
    assert table.next_expiry_ns() == 60 * SECOND


def test_a_silent_worker_returns_with_its_next_message(table):
    table.register(worker(), 0)
    table.expire(5 * SECOND)
    assert table.register(worker(), 20 * SECOND) == ("taken", [("returned", worker())])
    assert table.eligible("prefill") == 1
    assert table.next_expiry_ns() == 25 * SECOND


def test_after_60_seconds_it_is_removed_and_then_a_new_worker(table):
    table.register(worker(), 0)
    assert table.expire(60 * SECOND) == [("removed", worker())], "silent and removed at once"
    assert (table.size(), table.next_expiry_ns()) == (0, None)
    assert table.register(worker(), 61 * SECOND) == ("taken", [("added", worker())])


def test_the_message_of_a_worker_that_was_due_adds_it_anew(table):
    table.register(worker(), 0)
    assert table.register(worker(), 100 * SECOND) == (
        "taken",
        [("removed", worker()), ("added", worker())],
    )


def test_what_it_tells_anew_is_an_update(table):
    table.register(worker(), 0)
    other = worker(zmq="a:3", tp_size=2)
    assert table.register(other, SECOND) == ("taken", [("updated", other)])
    assert table.expire(6 * SECOND) == [("silenced", other)]
    assert table.register(worker(), 7 * SECOND) == (
        "taken",
        [("returned", worker()), ("updated", worker())],
    )


def test_a_worker_of_both_roles_is_rejected(table):
    table.register(worker(), 0)
    assert table.register(worker(role="decode"), SECOND) == ("other_role", [])
    assert table.expire(5 * SECOND) == [("silenced", worker())], "it kept nothing alive"
    assert table.register(worker(role="decode"), 59 * SECOND) == ("other_role", [])
    assert table.register(worker(role="decode"), 60 * SECOND) == (
        "taken",
        [("removed", worker()), ("added", worker(role="decode"))],
    )


def test_the_first_mode_is_the_fleets_until_its_last_worker_is_gone(table):
    assert table.mode() is None
    table.register(worker("a:1", mode="READ"), 0)
    table.register(worker("b:1", "decode", mode="READ"), 10 * SECOND)
    assert table.mode() == "READ"
    assert table.register(worker("c:1", mode="WRITE"), 11 * SECOND) == ("other_mode", [])
    assert table.register(worker("a:1", mode="WRITE"), 11 * SECOND) == ("other_mode", [])
    assert table.register(worker("d:1"), 11 * SECOND)[0] == "taken", "without a mode"
    assert table.register(worker("c:1", mode="WRITE"), 69 * SECOND)[0] == "other_mode"
    assert table.mode() == "READ"
    assert table.register(worker("c:1", mode="WRITE"), 70 * SECOND) == (
        "taken",
        [
            ("removed", worker("b:1", "decode", mode="READ")),
            ("added", worker("c:1", mode="WRITE")),
        ],
    )
    assert table.mode() == "WRITE"


def test_a_mode_that_its_only_worker_drops_is_free(table):
    table.register(worker(mode="READ"), 0)
    assert table.register(worker(), 1) == ("taken", [("updated", worker())])
    assert table.mode() is None
    assert table.register(worker("b:1", mode="WRITE"), 2)[0] == "taken"
    assert table.register(worker(mode="READ"), 3) == ("other_mode", [])


def test_a_full_table_takes_no_new_worker():
    table = PdRegistrations(60 * SECOND, max_instances=2)
    table.register(worker("a:1"), 0)
    table.register(worker("b:1"), 1)
    assert table.register(worker("c:1"), 2) == ("full", [])
    assert table.register(worker("b:1"), 3) == ("taken", [])
    assert table.register(worker("c:1"), 60 * SECOND) == (
        "taken",
        [("removed", worker("a:1")), ("silenced", worker("b:1")), ("added", worker("c:1"))],
    )


def test_4096_workers_fit():
    table = PdRegistrations(60 * SECOND)
    for number in range(4096):
        assert table.register(worker(f"h:{number + 1}"), number)[0] == "taken"
    assert table.register(worker("i:1"), 4096) == ("full", [])
    assert table.size() == table.eligible("prefill") == 4096


def test_a_clock_that_goes_back_stands_still(table):
    table.register(worker(), 10 * SECOND)
    assert table.register(worker(), 3 * SECOND) == ("taken", [])
    assert table.expire(14 * SECOND) == []
    assert table.expire(15 * SECOND) == [("silenced", worker())]


def test_workers_are_forgotten_before_they_are_silent_if_that_is_shorter():
    table = PdRegistrations(SECOND)
    table.register(worker(), 0)
    assert table.next_expiry_ns() == SECOND
    assert table.expire(SECOND) == [("removed", worker())]
