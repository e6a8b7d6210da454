"""cpp/continuation/continue_machine.h: what follows what.

Every order of events is in tests/stress/continue_machine.cc.
"""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

METHODS = ["rerun", "tokens"]
LOST, ABORTED, TIMEOUT = "old_lost", "old_aborted", "old_timeout"
OPENED = ("admitted", "new_receipt")
MATCHED = ("admitted", "new_receipt", "new_matched")


def run(*events, methods=METHODS, most=2, max_losses=1, losses=0):
    """The machine after the events, each a name or (name, facts), and what the last one made it do."""
    machine = testing.ContinueMachine(methods, most, max_losses, losses)
    actions = []
    for event in events:
        name, facts = event if isinstance(event, tuple) else (event, {})
        actions = machine.step(name, facts.get("complete", False), facts.get("methods", methods))
    return machine, actions


def did(*events, **limits):
    return run(*events, **limits)[1]


def end_of(*events, **limits):
    machine, actions = run(*events, **limits)
    return machine.state, machine.why, actions


def test_a_stream_that_ends_is_whole():
    machine, actions = run("old_ended")
    assert actions == ["finish"]
    assert (machine.state, machine.old_leg, machine.over) == ("whole", "none", True)


# ---- a loss


def test_a_lost_stream_goes_on_elsewhere():
    machine, actions = run(LOST)
    assert (machine.state, actions) == ("seeking", ["report_loss", "seek"])
    assert machine.step("admitted", False, []) == ["open"]
    assert (machine.state, machine.method, machine.holds_slot) == ("opening", "rerun", True)
    assert machine.step("new_receipt", False, []) == ["release_slot"]
    assert (machine.state, machine.holds_slot) == ("verifying", False)
    assert machine.step("new_matched", False, []) == ["promote"]
    assert (machine.state, machine.old_leg, machine.continuations, machine.losses) == ("live", "read", 1, 1)
    assert machine.step("old_ended", False, []) == ["finish"]


def test_an_abort_is_no_loss():
    machine, actions = run(ABORTED)
    assert (actions, machine.losses) == (["seek"], 0)


def test_a_stream_that_is_silent_for_too_long_is_closed():
    machine, actions = run(TIMEOUT)
    assert (actions, machine.losses) == (["close_old", "seek"], 0)


@for_each_row(
    ("event", "actions"),
    [
        (LOST, ["report_loss", "write_end"]),
        (ABORTED, ["write_end"]),
        (TIMEOUT, ["close_old", "write_end"]),
    ],
)
def test_a_stream_that_lacks_only_its_end_is_not_continued(event, actions):
    assert end_of((event, {"complete": True})) == ("whole", "none", actions)


# ---- why a stream is cut


@for_each_row(
    ("limits", "events", "why"),
    [
        ({"methods": []}, [LOST], "not_eligible"),
        ({}, [(LOST, {"methods": []})], "not_eligible"),
        ({"methods": ["rerun"]}, [(LOST, {"methods": ["tokens"]})], "not_eligible"),
        ({"most": 0}, [LOST], "max"),
        ({"most": 1}, [ABORTED, *MATCHED, ABORTED], "max"),
        ({"most": 1}, [ABORTED, "admitted", "new_failed"], "max"),
        ({"max_losses": 0}, [LOST], "lost_again"),
        ({"losses": 1}, [LOST], "lost_again"),
        ({}, [LOST, *MATCHED, LOST], "lost_again"),
        ({}, [LOST, "admitted", "new_lost"], "lost_again"),
        ({}, [LOST, "suspected"], "suspected"),
        ({}, ["suspected", LOST], "suspected"),
        ({}, [LOST, *OPENED, "suspected"], "suspected"),
        ({}, [LOST, "no_target"], "no_worker"),
        ({}, [LOST, "wait_over"], "wait"),
        ({"methods": ["tokens"]}, [LOST, "admitted", "new_unfit"], "receipt"),
        ({"methods": ["rerun"]}, [LOST, *OPENED, "new_differs"], "diverged"),
        ({"methods": ["rerun"]}, [LOST, *OPENED, "new_short"], "diverged"),
    ],
)
def test_why_a_stream_is_cut(limits, events, why):
    state, said, actions = end_of(*events, **limits)
    assert (state, said) == ("cut", why)
    assert actions[-1] == "cut"


# ---- attempts that fail


@for_each_row(
    ("events", "actions"),
    [
        (["admitted", "new_failed"], ["release_slot", "seek"]),
        (["admitted", "new_timeout"], ["close_new", "release_slot", "seek"]),
        (["admitted", "new_unfit"], ["close_new", "release_slot", "seek"]),
        (["admitted", "new_lost"], ["report_loss", "release_slot", "seek"]),
        ([*OPENED, "new_failed"], ["seek"]),
        ([*OPENED, "new_timeout"], ["close_new", "seek"]),
        ([*OPENED, "new_lost"], ["report_loss", "seek"]),
        ([*OPENED, "new_differs"], ["close_new", "seek"]),
        ([*OPENED, "new_short"], ["seek"]),
    ],
)
def test_after_an_attempt_another_one_follows(events, actions):
    machine, did_last = run(ABORTED, *events)
    assert did_last == actions
    assert machine.state == "seeking"


@for_each_row(
    ("event", "method"),
    [("new_failed", "rerun"), ("new_timeout", "rerun"), ("new_lost", "rerun"), ("new_unfit", "tokens")],
)
def test_the_method_of_the_next_attempt(event, method):
    machine, _ = run(ABORTED, "admitted", event, "admitted")
    assert (machine.state, machine.method) == ("opening", method)


def test_a_method_that_diverged_is_left_out_for_good():
    machine, _ = run(ABORTED, *OPENED, "new_differs", *MATCHED, most=3)
    assert (machine.state, machine.methods) == ("live", ["tokens"])


def test_the_place_in_the_text_permits_methods():
    machine, _ = run((ABORTED, {"methods": ["parsed_tokens"]}), methods=["tokens", "parsed_tokens"])
    assert machine.methods == ["parsed_tokens"]


# ---- hand-over


def test_a_drain_pauses_the_old_stream_from_the_first_match_to_the_second():
    machine, actions = run("drain")
    assert actions == ["seek"]
    assert (machine.state, machine.old_leg, machine.is_handover) == ("seeking", "read", True)
    assert did("drain", *OPENED) == ["release_slot"]
    machine, actions = run("drain", *MATCHED)
    assert actions == ["pause_old"]
    assert (machine.state, machine.old_leg, machine.is_handover) == ("verifying", "paused", True)
    assert machine.step("new_matched", False, METHODS) == ["close_old", "promote"]
    assert (machine.state, machine.old_leg, machine.is_handover) == ("live", "read", False)


def test_a_stalled_stream_that_stays_silent_is_left_at_the_first_match():
    machine, actions = run("stall")
    assert (actions, machine.old_leg) == (["seek"], "silent")
    assert did("stall", *MATCHED) == ["close_old", "promote"]


@for_each_row("so_far", [[], ["admitted"], list(OPENED)], ids=["seeking", "opening", "verifying"])
def test_an_old_stream_goes_on_during_a_drain_and_may_end(so_far):
    machine, actions = run("drain", *so_far, "old_spoke")
    assert (actions, machine.old_leg, machine.is_handover) == ([], "read", True)
    assert end_of("drain", *so_far, "old_ended")[0] == "whole"


@for_each_row(
    ("events", "actions"),
    [
        ([], ["cancel_seek"]),
        (["admitted"], ["close_new", "release_slot"]),
        (OPENED, ["close_new"]),
    ],
)
def test_an_old_stream_that_speaks_after_a_stall_wins(events, actions):
    machine, did_last = run("stall", *events, "old_spoke")
    assert did_last == actions
    assert (machine.state, machine.old_leg) == ("live", "read")
    assert did("stall", *events, "old_ended") == [*actions, "finish"]


@for_each_row(
    ("events", "actions"),
    [
        (["no_target"], []),
        (["wait_over"], []),
        (["suspected"], ["cancel_seek"]),
        (["admitted", "new_failed"], ["release_slot"]),
        (["admitted", "new_unfit"], ["close_new", "release_slot"]),
        (["admitted", "new_lost"], ["report_loss", "release_slot"]),
        ([*OPENED, "new_differs"], ["close_new"]),
        ([*OPENED, "new_short"], []),
        ([*OPENED, "suspected"], ["close_new"]),
    ],
)
def test_a_hand_over_that_fails_costs_no_stream(events, actions):
    for why in ("drain", "stall"):
        machine, did_last = run(why, *events)
        assert did_last == actions
        assert (machine.state, machine.old_leg) == ("live", "read")


@for_each_row(
    ("event", "actions"),
    [
        ("new_differs", ["close_new"]),
        ("new_short", []),
        ("new_failed", []),
        ("new_timeout", ["close_new"]),
        ("new_lost", ["report_loss"]),
        ("suspected", ["close_new"]),
    ],
)
def test_a_paused_stream_goes_on_when_the_new_one_fails(event, actions):
    machine, did_last = run("drain", *MATCHED, event)
    assert did_last == [*actions, "resume_old"]
    assert (machine.state, machine.old_leg) == ("live", "read")


@for_each_row(
    ("event", "actions"),
    [(LOST, ["report_loss"]), (ABORTED, []), (TIMEOUT, ["close_old"])],
)
@for_each_row("so_far", [[], ["admitted"], list(OPENED)], ids=["seeking", "opening", "verifying"])
def test_a_hand_over_whose_old_stream_ends_is_a_continuation(so_far, event, actions):
    machine, did_last = run("drain", *so_far, event)
    assert did_last == actions
    assert not machine.is_handover
    rest = MATCHED[len(so_far) :]
    assert did("drain", *so_far, event, *rest) == ["promote"]
    assert end_of("drain", *so_far, event, *rest[:-1], "client_gone")[0] == "gone"


@pytest.mark.parametrize("event", ["drain", "stall"])
def test_after_a_loss_nothing_is_handed_over(event):
    assert did(LOST, *MATCHED, event) == []
    assert did(event, losses=1) == []
    assert did(event, max_losses=0) == []
    assert did("drain", "admitted", "new_lost", event) == []


@pytest.mark.parametrize("event", ["drain", "stall"])
def test_without_a_method_or_an_attempt_a_stream_stays_where_it_is(event):
    machine, actions = run(event, methods=[])
    assert (machine.state, actions) == ("live", [])
    assert did(event, most=0) == []
    assert did("suspected", event) == []


def test_a_paused_stream_says_nothing():
    assert did("drain", *MATCHED, "old_spoke") == []
    assert did("drain", *MATCHED, "old_ended") == []


# ---- the client


@for_each_row(
    ("events", "actions"),
    [
        ([], ["close_old"]),
        ([LOST], ["cancel_seek"]),
        ([LOST, "admitted"], ["close_new", "release_slot"]),
        ([LOST, *OPENED], ["close_new"]),
        (["drain"], ["cancel_seek", "close_old"]),
        (["drain", "admitted"], ["close_new", "release_slot", "close_old"]),
        (["drain", *OPENED], ["close_new", "close_old"]),
        (["drain", *MATCHED], ["close_new", "close_old"]),
    ],
)
def test_the_client_leaves(events, actions):
    machine, did_last = run(*events, "client_gone")
    assert did_last == actions
    assert (machine.state, machine.old_leg, machine.over) == ("gone", "none", True)
    assert did(*events, "client_gone", "old_ended") == []


def test_events_of_what_is_not_there_do_nothing():
    for event in (
        "admitted",
        "no_target",
        "wait_over",
        "new_receipt",
        "new_failed",
        "new_lost",
        "new_matched",
    ):
        assert did(event) == []
    assert did(LOST, "old_lost") == []
    assert did(LOST, "drain") == []
    assert did(LOST, "admitted", "new_matched") == []
    assert did(LOST, *OPENED, "new_receipt") == []
