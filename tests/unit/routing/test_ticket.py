"""cpp/routing/ticket.h: load comes back exactly once, whatever happens to the ticket.

load is (open requests, queued prefill, expected output, context).
"""

import pytest

from vllm_router import _core_testing as testing

NO_LOAD = (0, 0, 0, 0)


@pytest.fixture
def tickets():
    harness = testing.TicketHarness()
    yield harness
    assert harness.load[0] >= 0


def heard(tickets):
    return {end: count for end, count in tickets.heard.items() if count}


def test_a_ticket_reserves_its_share_and_finish_returns_it(tickets):
    ticket = tickets.make(prefill=100, output=20, context=100)
    assert tickets.load == (1, 100, 20, 100)
    assert not tickets.finished(ticket)
    assert tickets.finish(ticket)
    assert tickets.finished(ticket)
    assert tickets.load == NO_LOAD
    assert heard(tickets) == {"finished": 1}


def test_finish_works_once(tickets):
    ticket = tickets.make(1, 2, 3)
    assert tickets.finish(ticket, "worker_failed")
    assert not tickets.finish(ticket, "finished")
    tickets.drop(ticket)
    assert tickets.load == NO_LOAD
    assert heard(tickets) == {"worker_failed": 1}


def test_a_dropped_ticket_was_not_sent(tickets):
    tickets.drop(tickets.make(1, 2, 3))
    assert tickets.load == NO_LOAD
    assert heard(tickets) == {"not_sent": 1}


def test_the_first_token_returns_the_prefill_share_once(tickets):
    ticket = tickets.make(prefill=100, output=20, context=90)
    tickets.first_token(ticket)
    assert tickets.load == (1, 0, 20, 90)
    tickets.first_token(ticket)
    assert tickets.load == (1, 0, 20, 90)
    tickets.finish(ticket)
    assert tickets.load == NO_LOAD
    tickets.first_token(ticket)
    assert tickets.load == NO_LOAD
    assert (heard(tickets), tickets.first_tokens) == ({"finished": 1}, 1)


def test_a_moved_ticket_takes_the_promise_along(tickets):
    first = tickets.make(10, 20, 30)
    tickets.first_token(first)
    second = tickets.move(first)
    assert tickets.finished(first)
    assert not tickets.finished(second)
    assert not tickets.finish(first)
    tickets.drop(first)
    assert tickets.load == (1, 0, 20, 30)
    tickets.first_token(second)  # has come already
    assert tickets.load == (1, 0, 20, 30)
    assert tickets.finish(second)
    assert tickets.load == NO_LOAD
    assert heard(tickets) == {"finished": 1}


def test_assigning_ends_the_ticket_that_was_there(tickets):
    kept, lost = tickets.make(1, 1, 1), tickets.make(10, 10, 10)
    tickets.assign(to=lost, from_=kept)
    assert tickets.load == (1, 1, 1, 1)
    assert heard(tickets) == {"not_sent": 1}
    assert tickets.finish(lost)
    assert tickets.load == NO_LOAD


def test_assigning_a_ticket_to_itself_changes_nothing(tickets):
    ticket = tickets.make(1, 1, 1)
    tickets.assign(to=ticket, from_=ticket)
    assert tickets.load == (1, 1, 1, 1)
    tickets.drop(ticket)
    assert tickets.load == NO_LOAD


def test_an_empty_ticket_holds_nothing_and_is_finished(tickets):
    empty = tickets.make_empty()
    assert tickets.finished(empty)
    assert not tickets.finish(empty)
    tickets.first_token(empty)
    tickets.assign(to=empty, from_=tickets.make(1, 2, 3))
    assert tickets.load == (1, 1, 2, 3)
    tickets.drop(empty)
    assert tickets.load == NO_LOAD


def test_a_ticket_that_moves_takes_its_load_along(tickets):
    """mending row 52: the load is on one worker, and the policy hears that the first got nothing."""
    ticket = tickets.make(10, 20, 30)
    tickets.first_token(ticket)
    assert tickets.move_to(ticket, prefill=7, output=20, context=30)
    assert tickets.load == NO_LOAD
    assert tickets.other_load == (1, 7, 20, 30), "no token has come from there"
    assert heard(tickets) == {"not_sent": 1}
    tickets.first_token(ticket)
    assert tickets.other_load == (1, 0, 20, 30)
    assert tickets.move_to(ticket, 1, 2, 3)
    assert tickets.other_load == (1, 1, 2, 3)
    assert tickets.finish(ticket)
    assert tickets.other_load == NO_LOAD
    assert heard(tickets) == {"not_sent": 2, "finished": 1}


def test_a_finished_ticket_does_not_move(tickets):
    """mending row 52: and what it would have moved to is given back."""
    ticket = tickets.make(1, 2, 3)
    assert tickets.finish(ticket)
    assert not tickets.move_to(ticket, 1, 2, 3)
    assert tickets.load == tickets.other_load == NO_LOAD
    assert heard(tickets) == {"finished": 1, "not_sent": 1}


def test_worker_and_policy_live_as_long_as_the_ticket(tickets):
    before = tickets.owners
    ticket = tickets.make(1, 1, 1)
    assert tickets.owners == (before[0] + 1, before[1] + 1)
    tickets.finish(ticket)
    tickets.drop(ticket)
    assert tickets.owners == before


def test_when_finishes_first_tokens_and_moves_race_the_load_comes_back_once(tickets):
    rounds = 300
    assert tickets.race(rounds) == rounds
    assert tickets.load == tickets.other_load == NO_LOAD
    assert heard(tickets)["finished"] == rounds


def test_any_order_of_events_ends_with_no_load(tickets, rng):
    open_ = [tickets.make(rng.randrange(100), rng.randrange(100), rng.randrange(100)) for _ in range(50)]
    for _ in range(500):
        i = rng.randrange(len(open_))
        event = rng.choice(["first", "finish", "move"])
        if event == "first":
            tickets.first_token(open_[i])
        elif event == "finish":
            tickets.finish(open_[i])
        else:
            open_[i] = tickets.move(open_[i])
    for ticket in open_:
        tickets.drop(ticket)
    assert tickets.load == NO_LOAD
    assert sum(tickets.heard.values()) == 50
